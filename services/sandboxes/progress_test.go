package sandboxes

import (
	"context"
	"database/sql"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// A slowStore holds what runs in a transaction until it is let go.
type slowStore struct {
	Store
	running chan struct{} // one value when a function begins
	letGo   chan struct{}
}

func (s *slowStore) RunTx(ctx context.Context, c onlyonce.Claim, fn func(context.Context, *sql.Tx, onlyonce.Record) (onlyonce.Settlement, error)) (onlyonce.Record, error) {
	return s.Store.RunTx(ctx, c, func(ctx context.Context, tx *sql.Tx, r onlyonce.Record) (onlyonce.Settlement, error) {
		s.running <- struct{}{}
		<-s.letGo
		return fn(ctx, tx, r)
	})
}

// slow returns a world whose keyed commands are held.
func slow(t *testing.T, wait time.Duration) (*world, *slowStore) {
	w := newWorld(t)
	store := &slowStore{Store: w.api.store, running: make(chan struct{}, 1), letGo: make(chan struct{})}
	cfg := w.api.cfg
	cfg.Wait = wait
	api, err := New(t.Context(), w.db, store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	held := *w
	held.api = api
	return &held, store
}

func TestARepeatOfARunningRequestIsToldSoAfterTheWait(t *testing.T) {
	w, store := slow(t, 30*time.Millisecond)
	first := make(chan reply)
	go func() { first <- w.send("POST", "/v1/sandboxes", `{}`, key, "k1") }()
	<-store.running
	got := w.send("POST", "/v1/sandboxes", `{}`, key, "k1")
	got.want(t, 409, "request_in_progress")
	if got.Header.Get("Retry-After") == "" || got.Header.Get("Retry-After") == "0" {
		t.Errorf("header %v", got.Header)
	}
	close(store.letGo)
	same(t, <-first, w.send("POST", "/v1/sandboxes", `{}`, key, "k1"))
}

func TestARepeatWaitsForTheRunningRequestsAnswer(t *testing.T) {
	w, store := slow(t, time.Minute)
	replies := make(chan reply)
	ask := func() { replies <- w.send("POST", "/v1/sandboxes", `{}`, key, "k1") }
	go ask()
	<-store.running
	go ask()
	go ask()
	close(store.letGo)
	a, b, c := <-replies, <-replies, <-replies
	same(t, a, b)
	same(t, a, c)
	if a.Status != 201 {
		t.Error(a.Body)
	}
}

func TestACommandFinishesAlthoughItsCallerIsGone(t *testing.T) {
	w, store := slow(t, time.Minute)
	ctx, gone := context.WithCancel(t.Context())
	r := httptest.NewRequestWithContext(ctx, "POST", "/v1/sandboxes", strings.NewReader(`{"ttl":60}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(key, "k1")
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.api.ServeHTTP(httptest.NewRecorder(), r)
	}()
	<-store.running
	gone()
	close(store.letGo)
	<-done
	got := w.send("POST", "/v1/sandboxes", `{"ttl":60}`, key, "k1")
	if got.Status != 201 || got.Header.Get("Idempotency-Replayed") != "true" || w.count("SELECT count(*) FROM sandboxes_sandboxes") != 1 {
		t.Errorf("the repeat got %d %v %s", got.Status, got.Header, got.Body)
	}
}
