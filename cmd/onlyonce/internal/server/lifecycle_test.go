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
