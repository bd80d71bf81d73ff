package httponce_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func TestRejection_AProblemIsADocument(t *testing.T) {
	cfg := httponce.Config{Tenant: httponce.SingleTenant, Required: true}
	var runs atomic.Int32
	r := httptest.NewRequest("POST", "/orders", nil)
	want := map[string]any{
		"type": "about:blank", "title": "Bad Request", "status": 400.0, "code": "idempotency_key_missing", "retryable": false,
		"detail": "The request must have an idempotency key. Send a new random key with each new command, and the same key with each retry.",
	}
	check := func(w *httptest.ResponseRecorder) {
		t.Helper()
		var got map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("problem %v, %v, want %v", got, err, want)
		}
		wantProblem(t, w, 400, "idempotency_key_missing")
	}
	w := serve(httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), cfg), r)
	if check(w); w.Header().Get("Link") != "" {
		t.Fatalf("header %v", w.Header())
	}
	cfg.DocsURL = "https://example.com/docs"
	want["type"], want["title"] = "https://example.com/docs#idempotency_key_missing", "The request has no idempotency key"
	w = serve(httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), cfg), r)
	if check(w); w.Header().Get("Link") != `<https://example.com/docs>; rel="describedby"` {
		t.Fatalf("header %v", w.Header())
	}
}

func TestRejection_AnApplicationRendersProblemsItsOwnWay(t *testing.T) {
	cfg := single
	var got httponce.Problem
	cfg.Problem = func(w http.ResponseWriter, _ *http.Request, p httponce.Problem) {
		got = p
		http.Error(w, "own: "+p.Code+" "+p.Key, 409)
	}
	var runs atomic.Int32
	h := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), cfg)
	post(h, "k", "x")
	wantResponse(t, post(h, "k", "y"), 409, "own: idempotency_key_reused k\n")
	if got.Status != 422 || got.Retryable || !errors.Is(got.Err, onlyonce.ErrMismatch) {
		t.Fatalf("problem %+v", got)
	}
	wantResponse(t, post(h, "ä", "y"), 409, "own: idempotency_key_invalid \n")
}

func TestRejection_ATooLargeBodyIsRejectedBeforeAnything(t *testing.T) {
	store := &flaky{Store: memstore.New(memstore.Config{}), claim: errors.New("asked")}
	cfg := single
	cfg.MaxBody = 10
	var runs atomic.Int32
	h := httponce.Wrap(onlyonce.New(store, onlyonce.Config{}), counter(&runs), cfg)
	for name, r := range map[string]*http.Request{
		"declared": keyed("POST", "/orders", "k", "12345678901"),
		"chunked":  keyed("POST", "/orders", "k", ""),
		"lying":    keyed("POST", "/orders", "k", "12345678901"),
		"endless":  keyed("POST", "/orders", "k", ""),
	} {
		switch name {
		case "declared":
			r.Body = io.NopCloser(iotest.ErrReader(errors.New("read")))
		case "chunked":
			r.Body, r.ContentLength = io.NopCloser(iotest.OneByteReader(strings.NewReader("12345678901"))), -1
		case "lying":
			r.ContentLength = 3
		case "endless":
			r.Body, r.ContentLength = io.NopCloser(endless{}), -1
		}
		w := serve(h, r)
		wantProblem(t, w, 413, "body_too_large")
		if w.Header().Get("Connection") != "close" {
			t.Errorf("%s: header %v", name, w.Header())
		}
	}
	store.claim = nil
	wantResponse(t, post(h, "k", "1234567890"), 201, "run 1 of 1234567890")
	r := keyed("POST", "/orders", "k2", "12345678")
	r.Body = http.MaxBytesReader(nil, r.Body, 5)
	wantProblem(t, serve(h, r), 413, "body_too_large")
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestRejection_ABodyThatBreaksOffDoesNotRun(t *testing.T) {
	var runs atomic.Int32
	h := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), single)
	r := keyed("POST", "/orders", "k", "")
	r.Body, r.ContentLength = io.NopCloser(io.MultiReader(strings.NewReader("half"), iotest.ErrReader(io.ErrUnexpectedEOF))), 8
	wantProblem(t, serve(h, r), 400, "body_unreadable")
	wantResponse(t, post(h, "k", "whole"), 201, "run 1 of whole")
}

func TestRejection_ABodyAtTheLimitArrivesInFull(t *testing.T) {
	var runs atomic.Int32
	h := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), single)
	body := strings.Repeat("0123456789abcdef", 1<<16)
	wantResponse(t, post(h, "k", body), 201, "run 1 of "+body)
	r := keyed("POST", "/orders", "k", "")
	r.Body, r.ContentLength = io.NopCloser(iotest.HalfReader(strings.NewReader(body))), -1
	if w := serve(h, r); w.Header().Get("Idempotency-Replay") != "omitted" || runs.Load() != 1 { // the response is longer than 1 MiB
		t.Fatalf("the repeat has %v after %d runs", w.Header(), runs.Load())
	}
}

func TestRejection_PreferWaitIsGrantedUpToTheCap(t *testing.T) {
	for _, c := range []struct {
		prefer []string
		guard  time.Duration
		cap    time.Duration
		waits  time.Duration
	}{
		{nil, 0, time.Minute, 0},
		{nil, 3 * time.Second, time.Minute, 3 * time.Second},
		{[]string{"wait=2"}, 0, time.Minute, 2 * time.Second},
		{[]string{"wait=2"}, 0, 0, 0},
		{[]string{"wait=2"}, 3 * time.Second, 0, 3 * time.Second},
		{[]string{"wait=20"}, 0, 5 * time.Second, 5 * time.Second},
		{[]string{"wait=0"}, 3 * time.Second, time.Minute, 0},
		{[]string{"respond-async, Wait = 2; x=y"}, 0, time.Minute, 2 * time.Second},
		{[]string{"return=minimal", `wait="2"`}, 0, time.Minute, 2 * time.Second},
		{[]string{"wait=2, wait=3"}, 0, time.Minute, 2 * time.Second},
		{[]string{"wait=x"}, 3 * time.Second, time.Minute, 3 * time.Second},
		{[]string{"wait=-1"}, 0, time.Minute, 0},
		{[]string{"wait=99999999999999999999"}, 0, time.Minute, 0},
		{[]string{"wait"}, 0, time.Minute, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			cfg := single
			cfg.MaxWait = c.cap
			end := make(chan struct{})
			h := httponce.Wrap(newGuard(onlyonce.Config{Wait: c.guard}), http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }), cfg)
			go post(h, "k", "x")
			synctest.Wait()
			r := keyed("POST", "/orders", "k", "x")
			r.Header["Prefer"] = c.prefer
			began := time.Now()
			wantProblem(t, serve(h, r), 409, "request_in_progress")
			if waited := time.Since(began); waited != c.waits {
				t.Errorf("%q with a Guard's %v and a cap of %v waits %v, want %v", c.prefer, c.guard, c.cap, waited, c.waits)
			}
			close(end)
		})
	}
}

func TestRejection_ADuplicateThatWaitsGetsTheResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := httponce.Wrap(newGuard(onlyonce.Config{Wait: time.Minute}), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(time.Second)
			io.WriteString(w, "done")
		}), single)
		var all sync.WaitGroup
		defer all.Wait()
		for range 3 {
			all.Go(func() {
				if w := post(h, "k", "x"); w.Body.String() != "done" {
					t.Errorf("response %d %q", w.Code, w.Body)
				}
			})
		}
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		w := serve(h, keyed("POST", "/orders", "k", "x").WithContext(ctx))
		wantProblem(t, w, 503, "store_unavailable")
	})
}

func TestRejection_RetryAfterIsWhatIsLeftOfTheLeaseWithinBounds(t *testing.T) {
	for lease, want := range map[time.Duration]string{500 * time.Millisecond: "1", 2500 * time.Millisecond: "3", time.Hour: "5"} {
		synctest.Test(t, func(t *testing.T) {
			end := make(chan struct{})
			h := httponce.Wrap(newGuard(onlyonce.Config{Lease: lease}), http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }), single)
			go post(h, "k", "x")
			synctest.Wait()
			if got := post(h, "k", "x").Header().Get("Retry-After"); got != want {
				t.Errorf("a lease of %v: Retry-After %s, want %s", lease, got, want)
			}
			close(end)
		})
	}
}

func TestRejection_WhenTheStoreIsDownNothingRuns(t *testing.T) {
	store := &flaky{Store: memstore.New(memstore.Config{}), claim: errBroken}
	var runs atomic.Int32
	w := post(httponce.Wrap(onlyonce.New(store, onlyonce.Config{}), counter(&runs), single), "k", "x")
	wantProblem(t, w, 503, "store_unavailable")
	if w.Header().Get("Retry-After") == "" || runs.Load() != 0 || strings.Contains(w.Body.String(), errBroken.Error()) {
		t.Fatalf("header %v, %d runs, %s", w.Header(), runs.Load(), w.Body)
	}
}

func TestRejection_WhenTheStoreIsDownARequestMayRunUnprotectedAndSaysSo(t *testing.T) {
	store := &flaky{Store: memstore.New(memstore.Config{}), claim: errBroken}
	var events []onlyonce.Event
	g := onlyonce.New(store, onlyonce.Config{Observer: func(_ context.Context, e onlyonce.Event) { events = append(events, e) }})
	cfg := single
	cfg.RunUnprotected = true
	var runs atomic.Int32
	var kept io.Reader
	h := httponce.Wrap(g, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kept = io.MultiReader(r.Body)
		counter(&runs).ServeHTTP(w, r)
	}), cfg)
	for n := 1; n <= 2; n++ {
		w := post(h, "k", "x")
		wantResponse(t, w, 201, fmt.Sprintf("run %d of x", n))
		if w.Header().Get("Idempotency-Protected") != "no" || w.Header().Get("Idempotency-Expires") != "" {
			t.Fatalf("header %v", w.Header())
		}
		if len(events) != 2*n || events[2*n-2].Outcome != onlyonce.OutcomeUnavailable || events[2*n-1].Outcome != "unprotected" {
			t.Fatalf("events %+v", events)
		}
		for _, e := range events {
			if e.Record.ID.Key != "k" || !errors.Is(e.Err, errBroken) {
				t.Fatalf("event %+v", e)
			}
		}
	}
	if _, err := kept.Read(make([]byte, 1)); !errors.Is(err, http.ErrBodyReadAfterClose) {
		t.Fatalf("a kept body: %v", err)
	}
	store.claim = nil
	if w := post(h, "k", "x"); w.Header().Get("Idempotency-Protected") != "" {
		t.Fatalf("header %v", w.Header())
	}
}

func TestRejection_ARecordThatCantBeReadIsOfUnknownOutcome(t *testing.T) {
	g := onlyonce.New(corrupt{memstore.New(memstore.Config{})}, onlyonce.Config{HoldUnknown: true})
	var runs atomic.Int32
	wantProblem(t, post(httponce.Wrap(g, counter(&runs), single), "k", "x"), 409, "outcome_unknown")
}

// A corrupt store can't read its records.
type corrupt struct{ onlyonce.Store }

func (corrupt) Claim(_ context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
	return onlyonce.Record{ID: c.ID, State: onlyonce.StateUnknown, Corrupt: true, Error: "bad header"}, nil
}

func TestRejection_AKeptFailureWithoutAResponseIsAProblem(t *testing.T) {
	g := newGuard(onlyonce.Config{})
	id := onlyonce.ID{Tenant: "single", Operation: "POST /orders", Key: "k"}
	_, _ = onlyonce.Do(t.Context(), g, onlyonce.Request{ID: id, SkipFingerprint: true}, func(context.Context) (int, error) { return 0, onlyonce.Final(errBroken) })
	var runs atomic.Int32
	w := post(httponce.Wrap(g, counter(&runs), single), "k", "x")
	wantProblem(t, w, 500, "command_failed")
	if strings.Contains(w.Body.String(), errBroken.Error()) {
		t.Fatal("the problem tells the stored error")
	}
}

func TestRejection_ARepeatThatComesTooLateIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		h := httponce.Wrap(newGuard(onlyonce.Config{Keep: time.Hour, Remember: 24 * time.Hour}), counter(&runs), single)
		want := time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
		for range 2 {
			if got := post(h, "k", "x").Header().Get("Idempotency-Expires"); got != want {
				t.Fatalf("Idempotency-Expires: %s, want %s", got, want)
			}
		}
		time.Sleep(time.Hour + time.Second)
		wantProblem(t, post(h, "k", "x"), 410, "idempotency_key_expired")
		time.Sleep(23 * time.Hour)
		wantResponse(t, post(h, "k", "x"), 201, "run 2 of x")
	})
}

func TestRejection_ExpiresNamesTheEndOfProtection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		h := httponce.Wrap(newGuard(onlyonce.Config{Keep: time.Hour}), counter(&runs), single)
		want := time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
		for range 3 {
			if got := post(h, "k", "x").Header().Get("Idempotency-Expires"); got != want {
				t.Fatalf("Idempotency-Expires: %s, want %s", got, want)
			}
			time.Sleep(20 * time.Minute)
		}
		if got, later := post(h, "later", "x").Header().Get("Idempotency-Expires"), time.Now().Add(time.Hour); got != later.UTC().Format(http.TimeFormat) {
			t.Fatalf("Idempotency-Expires: %s, want %v", got, later)
		}
		wantResponse(t, post(h, "k", "x"), 201, "run 3 of x")
	})
}

func TestRejection_ATenantsRequestsInFlightAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := httponce.Config{Tenant: func(r *http.Request) string { return r.Header.Get("X-Tenant") }, MaxInFlight: 2}
		end := make(chan struct{})
		h := httponce.Wrap(newGuard(onlyonce.Config{}), http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }), cfg)
		send := func(tenant, key string) *httptest.ResponseRecorder {
			r := keyed("POST", "/orders", key, "x")
			r.Header.Set("X-Tenant", tenant)
			return serve(h, r)
		}
		go send("a", "1")
		go send("a", "2")
		synctest.Wait()
		w := send("a", "3")
		wantProblem(t, w, 429, "too_many_requests")
		if w.Header().Get("Retry-After") != "1" {
			t.Fatalf("header %v", w.Header())
		}
		go send("b", "1")
		synctest.Wait()
		close(end)
		synctest.Wait()
		wantResponse(t, send("a", "3"), 200, "")
	})
}

func TestRejection_ATenantsNewKeysAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := single
		cfg.MaxNewKeys = 3
		var runs atomic.Int32
		h := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), cfg)
		for range 5 {
			wantResponse(t, post(h, "a", "x"), 201, "run 1 of x") // a repeat spends nothing
		}
		wantProblem(t, post(h, "a", "y"), 422, "idempotency_key_reused")
		wantResponse(t, post(h, "b", "x"), 201, "")
		wantResponse(t, post(h, "c", "x"), 201, "")
		w := post(h, "d", "x")
		wantProblem(t, w, 429, "too_many_requests")
		if w.Header().Get("Retry-After") != "20" {
			t.Fatalf("header %v", w.Header())
		}
		time.Sleep(20 * time.Second)
		wantResponse(t, post(h, "d", "x"), 201, "run 4 of x")
		wantProblem(t, post(h, "e", "x"), 429, "too_many_requests")
		time.Sleep(time.Hour)
		for _, key := range []string{"e", "f", "g"} {
			wantResponse(t, post(h, key, "x"), 201, "")
		}
		wantProblem(t, post(h, "h", "x"), 429, "too_many_requests")
	})
}

func TestRejection_EveryRejectionSaysItsReasonInWords(t *testing.T) {
	cfg := single
	cfg.MaxBody, cfg.Required = 10, true
	var runs atomic.Int32
	h := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), cfg)
	post(h, "used", "x")
	detail := func(w *httptest.ResponseRecorder) string {
		var p struct{ Detail string }
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
			t.Fatal(err, w.Body)
		}
		return p.Detail
	}
	for want, w := range map[string]*httptest.ResponseRecorder{
		"used before for a different request": post(h, "used", "y"),
		"body is longer":                      post(h, "k", "12345678901"),
		"must have an idempotency key":        serve(h, httptest.NewRequest("POST", "/orders", nil)),
		"could not be identified":             post(httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), byTenant), "k", "x"),
	} {
		if got := detail(w); !strings.Contains(got, want) {
			t.Errorf("status %d has the detail %q, without %q", w.Code, got, want)
		}
	}
}

// A foreign store has records that this process can't use.
type foreign struct {
	onlyonce.Store
	state onlyonce.State
	body  string
}

func (s foreign) Claim(_ context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
	return onlyonce.Record{ID: c.ID, Fingerprint: c.Fingerprint, State: s.state, Owner: "another", Attempt: 1, Result: onlyonce.Result{Body: []byte(s.body)}}, nil
}

func TestRejection_ACommandOfWhichTheStoreHasARecordDoesNotRunUnprotected(t *testing.T) {
	cfg := single
	cfg.RunUnprotected = true
	for name, store := range map[string]foreign{
		"encrypted":          {state: onlyonce.StateCompleted, body: "ooe\x01 by cryptstore"},
		"of a later version": {state: "archived"},
	} {
		var runs atomic.Int32
		w := post(httponce.Wrap(onlyonce.New(store, onlyonce.Config{}), counter(&runs), cfg), "k", "x")
		if wantProblem(t, w, 503, "store_unavailable"); runs.Load() != 0 || w.Header().Get("Idempotency-Protected") != "" {
			t.Errorf("%s: %d runs, %v", name, runs.Load(), w.Header())
		}
	}
}

// lostStore is a store that can't be reached any more once it is lost.
type lostStore struct {
	onlyonce.Store
	lost atomic.Bool
}

func (s *lostStore) Claim(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
	if s.lost.Load() {
		return onlyonce.Record{}, errors.New("no response")
	}
	return s.Store.Claim(ctx, c)
}

func (s *lostStore) Lookup(ctx context.Context, id onlyonce.ID) (onlyonce.Record, error) {
	if s.lost.Load() {
		return onlyonce.Record{}, errors.New("no response")
	}
	return s.Store.Lookup(ctx, id)
}

func TestRejection_ARequestThatWaitsForAnotherDoesNotRunUnprotected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &lostStore{Store: memstore.New(memstore.Config{})}
		cfg := single
		cfg.RunUnprotected = true
		var runs atomic.Int32
		end := make(chan struct{})
		defer close(end)
		process := func() http.Handler {
			return httponce.Wrap(onlyonce.New(store, onlyonce.Config{Wait: time.Minute, Observer: onlyonce.DiscardEvents}), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				if runs.Add(1) == 1 {
					<-end
				}
			}), cfg)
		}
		go post(process(), "k", "x")
		synctest.Wait()
		time.AfterFunc(time.Second, func() { store.lost.Store(true) })
		w := post(process(), "k", "x")
		if wantProblem(t, w, 503, "store_unavailable"); runs.Load() != 1 {
			t.Errorf("%d runs", runs.Load())
		}
	})
}

// A client that is told that nothing was carried out could send the request with a new key.
func TestRejection_AWaitThatEndsWithItsContextSaysThatTheRequestIsRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		var outcomes []onlyonce.Outcome
		g := newGuard(onlyonce.Config{Wait: time.Minute, Observer: func(_ context.Context, e onlyonce.Event) { outcomes = append(outcomes, e.Outcome) }})
		h := httponce.Wrap(g, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }), single)
		go post(h, "k", "x")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		w := serve(h, keyed("POST", "/orders", "k", "x").WithContext(ctx))
		wantProblem(t, w, 409, "request_in_progress")
		if want := []onlyonce.Outcome{onlyonce.OutcomeWaited, onlyonce.OutcomeInFlight}; w.Header().Get("Retry-After") == "" || !slices.Equal(outcomes, want) {
			t.Errorf("header %v, outcomes %v", w.Header(), outcomes)
		}
		close(end)
	})
}
