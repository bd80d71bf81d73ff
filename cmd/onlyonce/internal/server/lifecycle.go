package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// A Lifecycle is a server with the work in the background that belongs to it.
type Lifecycle struct {
	Server     *http.Server
	Background []func(context.Context) error // each runs until its context ends
	Health     *Health
	Limit      time.Duration // for requests that run when the server stops
	Log        *slog.Logger
}

// Run serves until ctx ends or something fails, calls stopping, and lets what
// runs finish. It returns an error if something failed or did not finish in
// time.
func (l *Lifecycle) Run(ctx context.Context, ln net.Listener, stopping func()) error {
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	failed := make(chan error, 1+len(l.Background))
	var working sync.WaitGroup
	for _, run := range l.Background {
		working.Go(func() {
			if err := run(work); err != nil && work.Err() == nil {
				failed <- err
			}
		})
	}
	handlers := countHandlers(l.Server.Handler)
	l.Server.Handler = handlers
	go func() { failed <- fmt.Errorf("serve: %w", l.Server.Serve(ln)) }()

	var cause error
	select {
	case <-ctx.Done():
	case cause = <-failed:
	}
	stopping()
	l.Log.Info("stopping: running requests may finish; a second signal ends the process", "limit", l.Limit.String())
	err := l.drain(handlers)
	stopWork()
	err = errors.Join(err, l.wait(&working))
	l.Log.Info("stopped")
	return errors.Join(cause, err)
}

// backgroundLimit is how long the work in the background may take to end. It may hang,
// such as the reading of a file from a server that is away.
const backgroundLimit = 30 * time.Second

// wait waits for the work in the background.
func (l *Lifecycle) wait(working *sync.WaitGroup) error {
	ended := make(chan struct{})
	go func() {
		working.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-time.After(backgroundLimit):
		return fmt.Errorf("background work was still running after %v", backgroundLimit)
	}
}

// drain stops accepting and waits for the requests that run.
func (l *Lifecycle) drain(handlers *handlerCount) error {
	l.Health.stopping.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), l.Limit)
	defer cancel()
	err := l.Server.Shutdown(ctx)
	if err == nil {
		err = handlers.wait(ctx)
	}
	if err != nil {
		l.Log.Warn("requests are still running: closing their connections")
		return errors.Join(fmt.Errorf("requests were still running after %v: repeat them with the same keys to find out their outcomes", l.Limit), l.Server.Close())
	}
	return nil
}

// A handlerCount counts the HTTP/2 requests that are being served. Shutdown does not wait for
// one whose client has reset its stream or closed the connection, although its command may
// still be running. For HTTP/1 it does.
type handlerCount struct {
	handler http.Handler

	mu      sync.Mutex
	running int
	ended   chan struct{} // closed when none is running; nil: nobody waits
}

func countHandlers(h http.Handler) *handlerCount { return &handlerCount{handler: h} }

func (c *handlerCount) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor > 1 {
		c.add(1)
		defer c.add(-1)
	}
	c.handler.ServeHTTP(w, r)
}

func (c *handlerCount) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running += n; c.running == 0 && c.ended != nil {
		close(c.ended)
		c.ended = nil
	}
}

// wait waits until no request is being served, or ctx ends. It may be called once.
func (c *handlerCount) wait(ctx context.Context) error {
	ended := make(chan struct{})
	c.mu.Lock()
	if c.running == 0 {
		close(ended)
	} else {
		c.ended = ended
	}
	c.mu.Unlock()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
