package main

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

// A lifecycle is a server with the work in the background that belongs to it.
type lifecycle struct {
	server     *http.Server
	background []func(context.Context) error // each runs until its context ends
	health     *health
	limit      time.Duration // for what runs when the server stops
	log        *slog.Logger
}

// run serves until ctx ends or something fails, calls stopping, and lets what
// runs finish. It returns an error if something failed or did not finish in
// time.
func (l *lifecycle) run(ctx context.Context, ln net.Listener, stopping func()) error {
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	failed := make(chan error, 1+len(l.background))
	var working sync.WaitGroup
	for _, run := range l.background {
		working.Go(func() {
			if err := run(work); err != nil && work.Err() == nil {
				failed <- err
			}
		})
	}
	go func() { failed <- fmt.Errorf("serve: %w", l.server.Serve(ln)) }()

	var cause error
	select {
	case <-ctx.Done():
	case cause = <-failed:
	}
	stopping()
	l.log.Info("stopping: what runs may finish; a second signal ends the process", "limit", l.limit.String())
	err := l.drain()
	stopWork()
	working.Wait()
	l.log.Info("stopped")
	return errors.Join(cause, err)
}

// drain stops accepting and waits for the requests that run.
func (l *lifecycle) drain() error {
	l.health.stopping.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), l.limit)
	defer cancel()
	if err := l.server.Shutdown(ctx); err != nil {
		l.log.Warn("requests still run: their connections are closed")
		return errors.Join(fmt.Errorf("requests still ran after %v: their keys tell what became of them", l.limit), l.server.Close())
	}
	return nil
}
