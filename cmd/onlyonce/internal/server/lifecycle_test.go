package server

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A silentListener accepts nothing until it is closed.
type silentListener struct {
	closed chan struct{}
	close  func()
}

func newSilentListener() silentListener {
	closed := make(chan struct{})
	return silentListener{closed, sync.OnceFunc(func() { close(closed) })}
}

func (l silentListener) Accept() (net.Conn, error) { <-l.closed; return nil, net.ErrClosed }
func (l silentListener) Close() error              { l.close(); return nil }
func (l silentListener) Addr() net.Addr            { return &net.TCPAddr{} }

func TestLifecycle_WorkThatDoesNotEndDoesNotKeepTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := make(chan struct{})
		ctx, stop := context.WithCancel(t.Context())
		stop()
		l := Lifecycle{
			Server: &http.Server{}, Health: &Health{}, Limit: time.Minute, Log: slog.New(slog.DiscardHandler),
			Background: []func(context.Context) error{
				func(ctx context.Context) error { <-ctx.Done(); return nil },
				func(context.Context) error { <-never; return nil },
			},
		}
		began := time.Now()
		err := l.Run(ctx, newSilentListener(), func() {})
		if err == nil || !strings.Contains(err.Error(), "background") || time.Since(began) != backgroundLimit {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		close(never)
	})
}

func TestLifecycle_WorkThatEndsInTimeIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := false
		ctx, stop := context.WithCancel(t.Context())
		stop()
		l := Lifecycle{
			Server: &http.Server{}, Health: &Health{}, Limit: time.Minute, Log: slog.New(slog.DiscardHandler),
			Background: []func(context.Context) error{func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(backgroundLimit - 1)
				ended = true
				return nil
			}},
		}
		if err := l.Run(ctx, newSilentListener(), func() {}); err != nil || !ended {
			t.Errorf("ended %v: %v", ended, err)
		}
	})
}

// A pipeListener accepts one connection in memory.
type pipeListener struct {
	silentListener
	conns chan net.Conn
}

func (l pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// net/http does not wait for the handler of an HTTP/2 request whose client has gone.
func TestLifecycle_ARequestWhoseClientHasGoneIsWaitedFor(t *testing.T) {
	for _, test := range []struct {
		name  string
		leave func(http.RoundTripper, context.CancelFunc)
	}{
		{"the stream was reset", func(_ http.RoundTripper, cancel context.CancelFunc) { cancel() }},
		{"the connection was closed", func(rt http.RoundTripper, cancel context.CancelFunc) {
			cancel()
			synctest.Wait()
			rt.(*http.Transport).CloseIdleConnections()
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { waitsForARequestWhoseClientHasGone(t, test.leave) })
		})
	}
}

func waitsForARequestWhoseClientHasGone(t *testing.T, leave func(http.RoundTripper, context.CancelFunc)) {
	http2 := new(http.Protocols)
	http2.SetUnencryptedHTTP2(true)
	release, ended := make(chan struct{}), false
	here, there := net.Pipe()
	ln := pipeListener{newSilentListener(), make(chan net.Conn, 1)}
	ln.conns <- there
	l := Lifecycle{
		Server: &http.Server{Protocols: http2, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			<-release
			ended = true
		})},
		Health: &Health{}, Limit: time.Minute, Log: slog.New(slog.DiscardHandler),
	}
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- l.Run(ctx, ln, func() {}) }()

	client := &http.Transport{Protocols: http2, DialContext: func(context.Context, string, string) (net.Conn, error) { return here, nil }}
	defer client.CloseIdleConnections()
	of, cancel := context.WithCancel(t.Context())
	go func() {
		r, _ := http.NewRequestWithContext(of, http.MethodPost, "http://example.com/", http.NoBody)
		if _, err := client.RoundTrip(r); err == nil {
			t.Error("there is a response")
		}
	}()
	synctest.Wait()
	leave(client, cancel)
	synctest.Wait()
	stop()
	time.Sleep(l.Limit / 2)
	select {
	case err := <-stopped:
		t.Errorf("the server has stopped while a request was running: %v", err)
		close(release)
		return
	default:
	}
	close(release)
	if err := <-stopped; err != nil || !ended {
		t.Errorf("ended %v: %v", ended, err)
	}
}

func TestLifecycle_ARequestWhoseClientHasGoneDoesNotKeepTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := countHandlers(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-t.Context().Done() }))
		go c.ServeHTTP(nil, &http.Request{ProtoMajor: 2})
		synctest.Wait()
		l := Lifecycle{Server: &http.Server{}, Health: &Health{}, Limit: time.Minute, Log: slog.New(slog.DiscardHandler)}
		if err := l.drain(c); err == nil || !strings.Contains(err.Error(), "still running after 1m0s") {
			t.Error(err)
		}
	})
}
