package sandboxes

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/services/internal/apitest"
)

// held returns a world whose keyed commands are held.
func held(t *testing.T, wait time.Duration) (*world, *apitest.Held) {
	w := newWorld(t)
	store := apitest.Hold(w.store)
	cfg := w.api.cfg
	cfg.Wait = wait
	api, err := New(t.Context(), w.db, store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	other := *w
	other.api = api
	return &other, store
}

func TestProgress_ARepeatOfARunningRequestIsRejectedAfterTheWait(t *testing.T) {
	w, store := held(t, 30*time.Millisecond)
	first := make(chan reply)
	go func() { first <- w.send("POST", "/v1/sandboxes", `{}`, key, "k1") }()
	<-store.Running
	got := w.send("POST", "/v1/sandboxes", `{}`, key, "k1")
	got.want(t, 409, "request_in_progress")
	if got.Header.Get("Retry-After") == "" || got.Header.Get("Retry-After") == "0" {
		t.Errorf("header %v", got.Header)
	}
	close(store.LetGo)
	same(t, <-first, w.send("POST", "/v1/sandboxes", `{}`, key, "k1"))
}

func TestProgress_ARepeatOfARunningRequestIsRejectedAtOnceIfConfigured(t *testing.T) {
	w, store := held(t, -1)
	first := make(chan reply)
	go func() { first <- w.send("POST", "/v1/sandboxes", `{}`, key, "k1") }()
	<-store.Running
	w.send("POST", "/v1/sandboxes", `{}`, key, "k1").want(t, 409, "request_in_progress")
	for _, event := range w.log.Lines(t, "idempotency_waited") {
		t.Errorf("it waited: %v", event)
	}
	close(store.LetGo)
	same(t, <-first, w.send("POST", "/v1/sandboxes", `{}`, key, "k1"))
}

func TestProgress_ARepeatWaitsForTheRunningRequestsResponse(t *testing.T) {
	w, store := held(t, time.Minute)
	replies := make(chan reply)
	ask := func() { replies <- w.send("POST", "/v1/sandboxes", `{}`, key, "k1") }
	go ask()
	<-store.Running
	go ask()
	go ask()
	close(store.LetGo)
	a, b, c := <-replies, <-replies, <-replies
	same(t, a, b)
	same(t, a, c)
	if a.Status != 201 {
		t.Error(a.Body)
	}
}

func TestProgress_ACommandFinishesAlthoughItsCallerIsGone(t *testing.T) {
	w, store := held(t, time.Minute)
	ctx, gone := context.WithCancel(t.Context())
	r := httptest.NewRequestWithContext(ctx, "POST", "/v1/sandboxes", strings.NewReader(`{"ttl":60}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(key, "k1")
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.api.ServeHTTP(httptest.NewRecorder(), r)
	}()
	<-store.Running
	gone()
	close(store.LetGo)
	<-done
	got := w.send("POST", "/v1/sandboxes", `{"ttl":60}`, key, "k1")
	if got.Status != 201 || got.Header.Get("Idempotency-Replayed") != "true" || w.count("SELECT count(*) FROM sandboxes_sandboxes") != 1 {
		t.Errorf("the repeat got %d %v %s", got.Status, got.Header, got.Body)
	}
}
