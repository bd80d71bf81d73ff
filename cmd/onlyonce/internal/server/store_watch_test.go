package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/metrics"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// A fullStore reads, and can't write while it is full.
type fullStore struct {
	onlyonce.Store
	full atomic.Bool
}

func (s *fullStore) Claim(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
	if s.full.Load() {
		return onlyonce.Record{}, errors.New("database or disk is full (13)")
	}
	return s.Store.Claim(ctx, c)
}

func TestStoreWatch_AStoreThatCannotBeWrittenIsNotReadyAndItsLossAndReturnAreLoggedOnce(t *testing.T) {
	for name, doubted := range map[string]bool{"a request fails": true, "no request comes": false} {
		t.Run(name, func(t *testing.T) { loseStore(t, doubted) })
	}
}

// loseStore checks what a watch says of a store whose disk is full for a while. It is told
// that a request failed if doubted is set.
func loseStore(t *testing.T, doubted bool) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		store := &fullStore{Store: memstore.New(memstore.Config{})}
		watch := NewStoreWatch("main", store, metrics.New().Store("main"), slog.New(slog.NewTextHandler(&log, nil)))
		h := &Health{Checks: []func(context.Context) error{watch.Check}}
		ready := func() int {
			w := httptest.NewRecorder()
			h.Ready(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
			return w.Code
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = watch.Run(ctx) }()
		pause := func() { time.Sleep(probeEvery + probeEvery/2); synctest.Wait() }
		if got := ready(); got != 200 {
			t.Errorf("at first: %d", got)
		}
		store.full.Store(true)
		if doubted {
			watch.CheckSoon()
			time.Sleep(2 * probeEvery)
		} else {
			time.Sleep(10 * time.Second)
		}
		synctest.Wait()
		if !strings.Contains(log.String(), "level=WARN") {
			t.Fatal("the loss is not noticed")
		}
		for range 3 {
			if got := ready(); got != 503 {
				t.Errorf("while the disk is full: %d", got)
			}
			pause()
		}
		if text := log.String(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, "disk is full") || strings.Contains(text, "level=INFO") {
			t.Errorf("while it is full:\n%s", text)
		}
		store.full.Store(false)
		pause() // without a request
		if text := log.String(); strings.Count(text, "level=INFO") != 1 || !strings.Contains(text, "lost_for_ms=") {
			t.Errorf("afterwards:\n%s", text)
		}
		if got := ready(); got != 200 {
			t.Errorf("afterwards: %d", got)
		}
		stop()
		<-ended
	})
}

// A hungStore does not return from a claim, whatever its context says, until it is let go.
type hungStore struct {
	onlyonce.Store
	claims atomic.Int32
	letGo  chan struct{}
}

func (s *hungStore) Claim(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
	s.claims.Add(1)
	<-s.letGo
	return s.Store.Claim(context.WithoutCancel(ctx), c)
}

func TestStoreWatch_ManyCallersOfAHungStoreGetAnErrorInTimeAndMakeOneProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		store := &hungStore{Store: memstore.New(memstore.Config{}), letGo: make(chan struct{})}
		watch := NewStoreWatch("main", store, metrics.New().Store("main"), slog.New(slog.NewTextHandler(&log, nil)))
		began := time.Now()
		var callers sync.WaitGroup
		for range 50 {
			callers.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), readyWithin)
				defer cancel()
				if watch.Check(ctx) == nil {
					t.Error("a store that hangs is ready")
				}
			})
		}
		callers.Wait()
		if took := time.Since(began); took > silentAfter {
			t.Errorf("it took %v", took)
		}
		for range 3 {
			time.Sleep(probeEvery)
			if watch.Check(t.Context()) == nil {
				t.Error("a store that hangs is ready")
			}
		}
		if n := store.claims.Load(); n != 1 {
			t.Errorf("%d probes hang", n)
		}
		if text := log.String(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, "did not respond") {
			t.Errorf("the log says\n%s", text)
		}
		close(store.letGo)
		synctest.Wait()
		time.Sleep(probeEvery)
		_ = watch.Check(t.Context()) // the probe that hung; its time has run out
		time.Sleep(2 * readyWithin)  // and its lease
		if err := watch.Check(t.Context()); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

func TestStoreWatch_AStoreIsProbedOnceASecondHoweverOftenItIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hungStore{Store: memstore.New(memstore.Config{}), letGo: make(chan struct{})}
		close(store.letGo)
		watch := NewStoreWatch("main", store, metrics.New().Store("main"), slog.New(slog.DiscardHandler))
		for range 100 {
			if err := watch.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(probeEvery / 10)
		}
		if n := store.claims.Load(); n != 10 {
			t.Errorf("%d probes in 10 s", n)
		}
	})
}

func TestStoreWatch_ACallerThatLeavesSaysNothingAboutTheStore(t *testing.T) {
	var log strings.Builder
	watch := NewStoreWatch("main", memstore.New(memstore.Config{}), metrics.New().Store("main"), slog.New(slog.NewTextHandler(&log, nil)))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := watch.Check(gone); err != nil || log.Len() > 0 {
		t.Errorf("error %v, and the log says %q", err, &log)
	}
}

// isEmpty reports whether the store has no record and could say so.
func isEmpty(ctx context.Context, store onlyonce.Lister) bool {
	for range store.List(ctx, onlyonce.Filter{Limit: 1}) {
		return false
	}
	return true
}

func TestStoreWatch_ALookAtTheStoreLeavesNoRecord(t *testing.T) {
	t.Parallel()
	u, err := storeurl.Parse("sqlite:" + filepath.Join(t.TempDir(), "a.db"))
	if err != nil {
		t.Fatal(err)
	}
	store, err := u.OpenMigrated(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	watch := NewStoreWatch("main", store, metrics.New().Store("main"), slog.New(slog.DiscardHandler))
	for range 3 {
		if err := watch.probe(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if !isEmpty(t.Context(), store) {
		t.Error("there is a record")
	}
	if _, err := store.Claim(t.Context(), onlyonce.Claim{ID: probeID, Owner: strings.Repeat("o", 16), SkipFingerprint: true, Lease: 1}); err != nil { // of a process that died at once
		t.Fatal(err)
	}
	cmdtest.Until(t, "what a process that died has left is cleared up", func() bool {
		return watch.probe(t.Context()) == nil && isEmpty(t.Context(), store)
	})
}
