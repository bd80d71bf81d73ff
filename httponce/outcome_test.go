package httponce_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// responding returns a handler that responds with the status and counts its runs.
func responding(status int, runs *int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		*runs++
		w.Header().Set("X-Run", fmt.Sprint(*runs))
		w.WriteHeader(status)
		if status >= 200 && status != 204 && status != 304 {
			fmt.Fprintf(w, "run %d", *runs)
		}
	})
}

func TestOutcome_WhichResponsesAreStored(t *testing.T) {
	only200 := func(status int) bool { return status == 200 }
	for _, c := range []struct {
		status int
		cfg    httponce.Config
		stored bool
	}{
		{status: 200, stored: true},
		{status: 201, stored: true},
		{status: 204, stored: true},
		{status: 303, stored: true},
		{status: 304, stored: true},
		{status: 400, stored: true},
		{status: 404, stored: true},
		{status: 409, stored: true},
		{status: 422, stored: true},
		{status: 401},
		{status: 403},
		{status: 407},
		{status: 408},
		{status: 421},
		{status: 425},
		{status: 429},
		{status: 499},
		{status: 500},
		{status: 503},
		{status: 101},
		{status: 499, cfg: httponce.Config{KeepErrors: true}, stored: true},
		{status: 500, cfg: httponce.Config{KeepErrors: true}, stored: true},
		{status: 200, cfg: httponce.Config{StoreStatus: only200}, stored: true},
		{status: 201, cfg: httponce.Config{StoreStatus: only200}},
		{status: 401, cfg: httponce.Config{StoreStatus: func(int) bool { return true }}, stored: true},
	} {
		t.Run(fmt.Sprint(c.status, c.stored), func(t *testing.T) {
			runs := 0
			c.cfg.Tenant = httponce.SingleTenant
			h := httponce.Wrap(newGuard(onlyonce.Config{}), responding(c.status, &runs), c.cfg)
			first, again := post(h, "k", "x"), post(h, "k", "x")
			if first.Code != c.status || again.Code != c.status {
				t.Fatalf("answers %d and %d", first.Code, again.Code)
			}
			if stored := runs == 1; stored != c.stored || (again.Header().Get("Idempotency-Replayed") == "true") != c.stored {
				t.Fatalf("%d runs, the repeat has %v", runs, again.Header())
			}
			if (first.Header().Get("Idempotency-Expires") != "") != c.stored {
				t.Fatalf("the first response has %v", first.Header())
			}
			if c.stored && (first.Body.String() != again.Body.String() || again.Header().Get("X-Run") != "1") {
				t.Fatalf("%q, then %q with %v", first.Body, again.Body, again.Header())
			}
		})
	}
}

func TestOutcome_AStatusAfterWhichTheOutcomeIsUnknown(t *testing.T) {
	unknown := func(status int) bool { return status != 500 }
	for _, c := range []struct {
		status int
		cfg    httponce.Config
		mark   func(*http.Request)
		state  onlyonce.State
	}{
		{status: 503, state: onlyonce.StateUnknown},
		{status: 499, state: onlyonce.StateUnknown},
		{status: 500, state: onlyonce.StateFailed},
		{status: 400, state: onlyonce.StateCompleted},
		{status: 429},
		{status: 503, cfg: httponce.Config{KeepErrors: true}, state: onlyonce.StateUnknown},
		{status: 503, mark: httponce.DontStore},
		{status: 200, cfg: httponce.Config{StatusOf: func(onlyonce.Result) int { return 503 }}, state: onlyonce.StateUnknown},
		{status: 503, cfg: httponce.Config{StatusOf: func(onlyonce.Result) int { return 500 }}, state: onlyonce.StateFailed},
	} {
		runs := 0
		c.cfg.Tenant, c.cfg.UnknownStatus = httponce.SingleTenant, unknown
		store := memstore.New(memstore.Config{})
		h := httponce.Wrap(onlyonce.New(store, onlyonce.Config{HoldUnknown: true}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if c.mark != nil {
				c.mark(r)
			}
			responding(c.status, &runs).ServeHTTP(w, r)
		}), c.cfg)
		wantResponse(t, post(h, "k", "x"), c.status, "run 1")
		rec, err := store.Lookup(t.Context(), onlyonce.ID{Tenant: "single", Operation: "POST /orders", Key: "k"})
		if c.state == "" && !errors.Is(err, onlyonce.ErrNotFound) || c.state != "" && (err != nil || rec.State != c.state) {
			t.Errorf("%d: the record is %+v, %v, want %q", c.status, rec, err, c.state)
		}
		if w := post(h, "k", "x"); c.state == onlyonce.StateUnknown {
			wantProblem(t, w, 409, "outcome_unknown")
		}
	}
}

func TestOutcome_AHandlerThatIsStillRunningElsewhereHasNotResponded(t *testing.T) {
	all := single
	all.StoreStatus = func(int) bool { return true }
	for _, cfg := range []httponce.Config{single, all} {
		runs := 0
		h := httponce.Wrap(newGuard(onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if runs == 0 {
				w.Header().Set("Retry-After", "1")
			}
			responding(409, &runs).ServeHTTP(w, r)
		}), cfg)
		for _, want := range []string{"run 1", "run 2", "run 2"} {
			wantResponse(t, post(h, "k", "x"), 409, want)
		}
	}
}

func TestOutcome_AKeyWhoseResponseIsNotStoredIsAsNew(t *testing.T) {
	runs := 0
	h := httponce.Wrap(newGuard(onlyonce.Config{}), responding(403, &runs), single)
	post(h, "k", "x")
	wantResponse(t, post(h, "k", "another request"), 403, "run 2")
}

func TestOutcome_AGuardThatKeepsFailuresReplaysThem(t *testing.T) {
	runs := 0
	h := httponce.Wrap(newGuard(onlyonce.Config{KeepFailures: true}), responding(500, &runs), single)
	for _, replayed := range []string{"", "true"} {
		w := post(h, "k", "x")
		wantResponse(t, w, 500, "run 1")
		if w.Header().Get("Idempotency-Replayed") != replayed {
			t.Fatalf("header %v", w.Header())
		}
	}
}

func TestOutcome_AHandlerDecidesWhatBecomesOfItsResponse(t *testing.T) {
	for _, c := range []struct {
		name  string
		say   func(*http.Request)
		state onlyonce.State // "": no record
	}{
		{"DontStore", httponce.DontStore, ""},
		{"Unknown", func(r *http.Request) { httponce.Unknown(r, nil) }, onlyonce.StateUnknown},
		{"both", func(r *http.Request) { httponce.DontStore(r); httponce.Unknown(r, nil) }, onlyonce.StateUnknown},
		{"DontStoreBody", httponce.DontStoreBody, onlyonce.StateCompleted},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := memstore.New(memstore.Config{})
			h := httponce.Wrap(onlyonce.New(store, onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c.say(r.WithContext(context.WithValue(r.Context(), anyKey{}, "b")))
				w.WriteHeader(201)
				io.WriteString(w, "secret")
			}), single)
			wantResponse(t, post(h, "k", "x"), 201, "secret")
			rec, err := store.Lookup(t.Context(), onlyonce.ID{Tenant: "single", Operation: "POST /orders", Key: "k"})
			if c.state == "" && !errors.Is(err, onlyonce.ErrNotFound) || rec.State != c.state {
				t.Fatalf("record %+v, %v", rec, err)
			}
		})
	}
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	httponce.DontStore(r)
	httponce.DontStoreBody(r)
	httponce.Unknown(r, nil)
}

func TestOutcome_TheRecordKeepsTheFirstCauseOfAnUnknownOutcome(t *testing.T) {
	silent, late := errors.New("the bank is silent"), errors.New("the bank is late")
	for want, causes := range map[string][]error{
		"the handler reported that its outcome is unknown": {nil, nil},
		"the bank is silent": {nil, silent, late, nil},
		"the bank is late":   {late, silent},
	} {
		store := memstore.New(memstore.Config{})
		h := httponce.Wrap(onlyonce.New(store, onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for _, cause := range causes {
				httponce.Unknown(r, cause)
			}
		}), single)
		post(h, "k", "x")
		rec, err := store.Lookup(t.Context(), onlyonce.ID{Tenant: "single", Operation: "POST /orders", Key: "k"})
		if err != nil || rec.State != onlyonce.StateUnknown || rec.Error != want {
			t.Errorf("%v: %s %q, error %v", causes, rec.State, rec.Error, err)
		}
	}
}

// A handler that streams, such as a proxy, can tell its client only by breaking off the response.
func TestOutcome_TheRecordOfAResponseThatIsBrokenOffKeepsTheCause(t *testing.T) {
	for want, p := range map[string]any{"the bank is silent": http.ErrAbortHandler, "panic: boom": "boom"} {
		store := memstore.New(memstore.Config{})
		h := httponce.Wrap(onlyonce.New(store, onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			httponce.Unknown(r, errors.New("the bank is silent"))
			panic(p)
		}), single)
		wantPanic(t, p, func() { post(h, "k", "x") })
		if rec := lookup(t, store, "k"); rec.State != onlyonce.StateUnknown || rec.Error != want {
			t.Errorf("%v: %s %q, want %q", p, rec.State, rec.Error, want)
		}
	}
}

// cutShort writes a part of the body that it announces.
func cutShort(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "10")
	w.WriteHeader(201)
	io.WriteString(w, "part")
}

func TestOutcome_AResponseShorterThanAnnouncedLeavesTheOutcomeUnknown(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"at its end": cutShort,
		"streamed": func(w http.ResponseWriter, r *http.Request) {
			cutShort(w, r)
			http.NewResponseController(w).Flush()
		},
		"empty":         func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "10") },
		"one write too": func(w http.ResponseWriter, r *http.Request) { cutShort(w, r); io.WriteString(w, "too much of it") },
		"an error": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10")
			w.WriteHeader(503)
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := memstore.New(memstore.Config{})
			cfg := single
			cfg.KeepErrors = true
			s := httptest.NewServer(httponce.Wrap(onlyonce.New(store, onlyonce.Config{HoldUnknown: true}), h, cfg))
			defer s.Close()
			const request = "POST /orders HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k\r\nContent-Length: 1\r\n\r\nx"
			if got := raw(t, s, request); !strings.Contains(got, "Content-Length: 10\r\n") || strings.Contains(got, "Expires") { // raw waits until the connection is closed
				t.Errorf("the client gets %q", got)
			}
			if rec := lookup(t, store, "k"); rec.State != onlyonce.StateUnknown || !strings.Contains(rec.Error, "of the 10 bytes") {
				t.Errorf("record %+v", rec)
			}
		})
	}
}

func TestOutcome_AResponseThatItsClientCutShortIsRecorded(t *testing.T) {
	store := memstore.New(memstore.Config{})
	h := httponce.Wrap(onlyonce.New(store, onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		for range 10 {
			if _, err := io.WriteString(w, "0123456789"); err != nil {
				return
			}
		}
		t.Error("no write failed")
	}), httponce.Config{Tenant: httponce.SingleTenant, MaxResponse: 20})
	h.ServeHTTP(broken{httptest.NewRecorder()}, keyed(http.MethodPost, "/orders", "k", "x"))
	if rec := lookup(t, store, "k"); rec.State != onlyonce.StateCompleted {
		t.Errorf("record %+v", rec)
	}
}

func TestOutcome_APanicLeavesTheOutcomeUnknownAndGoesOn(t *testing.T) {
	for _, v := range []any{"boom", http.ErrAbortHandler, errors.New("boom")} {
		store := memstore.New(memstore.Config{})
		h := httponce.Wrap(onlyonce.New(store, onlyonce.Config{HoldUnknown: true}), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "half of it")
			panic(v)
		}), single)
		w := httptest.NewRecorder()
		wantPanic(t, v, func() { h.ServeHTTP(w, keyed(http.MethodPost, "/orders", "k", "x")) })
		if w.Body.Len() != 0 {
			t.Errorf("%q has left", w.Body)
		}
		if rec := lookup(t, store, "k"); rec.State != onlyonce.StateUnknown || rec.Error != fmt.Sprint("panic: ", v) {
			t.Errorf("record %+v", rec)
		}
		again := post(h, "k", "x")
		wantProblem(t, again, 409, "outcome_unknown")
		if !strings.Contains(again.Body.String(), `"retryable":false`) {
			t.Errorf("problem %s", again.Body)
		}
	}
}

func TestOutcome_AnErrorAfterAStepThatIsNotStoredLeavesTheOutcomeUnknown(t *testing.T) {
	store := memstore.New(memstore.Config{})
	charges := 0
	h := httponce.Wrap(onlyonce.New(store, onlyonce.Config{HoldUnknown: true}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := onlyonce.Step(r.Context(), "charge", func(context.Context) (chan int, error) { charges++; return nil, nil }); err == nil {
			t.Error("a channel was stored")
		}
		http.Error(w, "the payment failed", http.StatusBadGateway)
	}), single)
	wantResponse(t, post(h, "k", "x"), 502, "the payment failed\n")
	wantProblem(t, post(h, "k", "x"), 409, "outcome_unknown")
	if charges != 1 {
		t.Errorf("charged %d times", charges)
	}
}

func TestOutcome_AGoroutineThatEndsLeavesTheOutcomeUnknown(t *testing.T) {
	store := memstore.New(memstore.Config{})
	h := httponce.Wrap(onlyonce.New(store, onlyonce.Config{}), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		runtime.Goexit()
	}), single)
	done := make(chan struct{})
	go func() {
		defer close(done)
		post(h, "k", "x")
	}()
	<-done
	if rec := lookup(t, store, "k"); rec.State != onlyonce.StateUnknown {
		t.Errorf("record %+v", rec)
	}
}

func TestOutcome_TheResponseOfAnAttemptThatLostItsLeaseIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &flaky{Store: memstore.New(memstore.Config{}), renew: onlyonce.ErrLost, settle: onlyonce.ErrLost}
		g := onlyonce.New(store, onlyonce.Config{})
		var ctxErr error
		h := httponce.Wrap(g, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Secret", "1")
			io.WriteString(w, "answer")
			<-r.Context().Done()
			ctxErr = context.Cause(r.Context())
		}), single)
		w := post(h, "k", "x")
		wantProblem(t, w, 409, "request_in_progress")
		if w.Header().Get("X-Secret") != "" || !errors.Is(ctxErr, onlyonce.ErrLost) {
			t.Fatalf("header %v, cause %v", w.Header(), ctxErr)
		}
	})
}

// TestOutcome_AStreamOfAnAttemptThatLostItsLeaseBreaksOff: another attempt has run, and its
// response is the one that is replayed.
func TestOutcome_AStreamOfAnAttemptThatLostItsLeaseBreaksOff(t *testing.T) {
	for name, length := range map[string]string{"of announced length": "6", "of unknown length": "", "of unknown length, and a recovery outside": ""} {
		t.Run(name, func(t *testing.T) {
			recovers := strings.Contains(name, "recovery")
			store := &flaky{Store: memstore.New(memstore.Config{}), settle: onlyonce.ErrLost}
			var outcomes []onlyonce.Outcome
			g := onlyonce.New(store, onlyonce.Config{Observer: func(_ context.Context, e onlyonce.Event) { outcomes = append(outcomes, e.Outcome) }})
			h := httponce.Wrap(g, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if length != "" {
					w.Header().Set("Content-Length", length)
				}
				io.WriteString(w, "ans")
				http.NewResponseController(w).Flush()
				io.WriteString(w, "wer")
			}), single)
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() {
					if p := recover(); !recovers && p != nil {
						panic(p)
					}
				}()
				h.ServeHTTP(w, r)
			}))
			defer s.Close()
			r := keyed(http.MethodPost, s.URL+"/orders", "k", "x")
			r.RequestURI = ""
			res, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if body, err := io.ReadAll(res.Body); err == nil {
				t.Errorf("the client got all of it: %q", body)
			}
			s.Close()
			if want := []onlyonce.Outcome{onlyonce.OutcomeLost}; !slices.Equal(outcomes, want) {
				t.Errorf("outcomes %v, want %v", outcomes, want)
			}
		})
	}
}

// A begun response keeps its connection, as gin's does once it has written something.
type begun struct{ http.ResponseWriter }

func (w begun) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w begun) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, http.ErrNotSupported }

// A response over HTTP/1.0 without a length ends when its connection ends.
func TestOutcome_AStreamThatBreaksOffEndsWithAResetOverHTTP10(t *testing.T) {
	for name, start := range map[string]func(*httptest.Server){"plain": (*httptest.Server).Start, "TLS": (*httptest.Server).StartTLS} {
		t.Run(name, func(t *testing.T) {
			store := &flaky{Store: memstore.New(memstore.Config{}), settle: onlyonce.ErrLost}
			h := httponce.Wrap(onlyonce.New(store, onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				io.WriteString(w, "ans")
				http.NewResponseController(w).Flush()
				io.WriteString(w, "wer")
			}), single)
			s := httptest.NewUnstartedServer(recovered(http.StatusInternalServerError, func(w http.ResponseWriter, r *http.Request) {
				h.ServeHTTP(begun{w}, r)
			}))
			start(s)
			defer s.Close()
			conn, err := net.Dial("tcp", s.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			if s.TLS != nil {
				conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
			}
			defer conn.Close()
			io.WriteString(conn, "POST /orders HTTP/1.0\r\nIdempotency-Key: k\r\nContent-Length: 1\r\n\r\nx")
			if response, err := io.ReadAll(conn); err == nil {
				t.Errorf("the client takes this for the whole: %q", response)
			}
		})
	}
}

func TestOutcome_AFailureAfterTheAttemptsTimeIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, status := &flaky{Store: memstore.New(memstore.Config{}), renew: errBroken}, 0
		h := httponce.Wrap(onlyonce.New(store, onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			http.Error(w, "cancelled", status)
		}), single)
		for _, status = range []int{503, 499} {
			key := fmt.Sprint("k", status)
			wantResponse(t, post(h, key, "x"), status, "cancelled\n")
			if rec := lookup(t, store, key); rec.State != onlyonce.StateUnknown {
				t.Errorf("after %d, the record is %+v", status, rec)
			}
		}
	})
}

func TestOutcome_AResponseThatCantBeRecordedIsStillSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var outcomes []onlyonce.Outcome
		store := &flaky{Store: memstore.New(memstore.Config{}), settle: errBroken}
		runs := 0
		h := httponce.Wrap(onlyonce.New(store, onlyonce.Config{Observer: func(_ context.Context, e onlyonce.Event) {
			outcomes = append(outcomes, e.Outcome)
		}}), responding(201, &runs), single)
		w := post(h, "k", "x")
		wantResponse(t, w, 201, "run 1")
		if w.Header().Get("Idempotency-Expires") != "" || fmt.Sprint(outcomes) != "[unrecorded]" {
			t.Fatalf("header %v, outcomes %v", w.Header(), outcomes)
		}
	})
}

func TestOutcome_AClientThatGoesAwayDoesNotStopTheCommand(t *testing.T) {
	began, end := make(chan struct{}), make(chan struct{})
	h := httponce.Wrap(newGuard(onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(began)
		<-end
		if r.Context().Err() != nil {
			t.Error("the handler's context has ended")
		}
		io.WriteString(w, "done")
	}), single)
	served := make(chan struct{}, 2)
	s := newServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		served <- struct{}{}
	}), false)
	ctx, cancel := context.WithCancel(t.Context())
	r := keyed(http.MethodPost, s.URL, "k", "x").WithContext(ctx)
	r.RequestURI = ""
	failed := make(chan error)
	go func() { _, err := s.Client().Do(r); failed <- err }()
	<-began
	cancel()
	if err := <-failed; err == nil {
		t.Fatal("the client got a response")
	}
	close(end)
	<-served
	again := keyed(http.MethodPost, s.URL, "k", "x")
	again.RequestURI = ""
	res, err := s.Client().Do(again)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, _ := io.ReadAll(res.Body); string(body) != "done" || res.Header.Get("Idempotency-Replayed") != "true" {
		t.Fatalf("the retry got %q with %v", body, res.Header)
	}
}

// A flaky store fails where it is told to.
type flaky struct {
	onlyonce.Store
	claim, renew, settle error
}

func (f *flaky) Claim(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
	if f.claim != nil {
		return onlyonce.Record{}, f.claim
	}
	return f.Store.Claim(ctx, c)
}

func (f *flaky) Renew(ctx context.Context, h onlyonce.Hold, lease time.Duration, steps map[string][]byte) error {
	if f.renew != nil {
		return f.renew
	}
	return f.Store.Renew(ctx, h, lease, steps)
}

func (f *flaky) Settle(ctx context.Context, h onlyonce.Hold, s onlyonce.Settlement) error {
	if f.settle != nil {
		return f.settle
	}
	return f.Store.Settle(ctx, h, s)
}

type anyKey struct{}

func TestOutcome_ALayerInALayerLeavesTheCommandToTheOuterOne(t *testing.T) {
	var runs atomic.Int32
	g := newGuard(onlyonce.Config{})
	h := httponce.Wrap(g, httponce.Wrap(g, counter(&runs), single), single)
	first, again := post(h, "k", "x"), post(h, "k", "x")
	if first.Code >= 400 || first.Body.String() != again.Body.String() || runs.Load() != 1 {
		t.Fatalf("ran %d times: %d %q, then %d %q", runs.Load(), first.Code, first.Body, again.Code, again.Body)
	}
	if first.Header().Get("Idempotency-Replayed") != "" || again.Header().Get("Idempotency-Replayed") != "true" {
		t.Fatalf("headers %v, then %v", first.Header(), again.Header())
	}
}

// The Guard inside may have another policy for unknown outcomes, or another store, than the one that
// would decide about the command.
func TestOutcome_ALayerOfAnotherGuardInALayerPanicsAndNothingRuns(t *testing.T) {
	var runs atomic.Int32
	holding := newGuard(onlyonce.Config{HoldUnknown: true})
	store := memstore.New(memstore.Config{})
	h := httponce.Wrap(onlyonce.New(store, onlyonce.Config{}), httponce.Wrap(holding, counter(&runs), single), single)
	func() {
		defer func() {
			if text := fmt.Sprint(recover()); !strings.Contains(text, "another Guard") {
				t.Errorf("the panic is %s", text)
			}
		}()
		post(h, "k", "x")
	}()
	if runs.Load() != 0 {
		t.Errorf("%d runs", runs.Load())
	}
	rec, err := store.Lookup(t.Context(), onlyonce.ID{Tenant: "single", Operation: "POST /orders", Key: "k"})
	if err != nil || rec.State != onlyonce.StateUnknown {
		t.Errorf("the record is %+v, %v", rec, err)
	}
	if got := serve(h, httptest.NewRequest("POST", "/orders", strings.NewReader("x"))); got.Code != 201 {
		t.Errorf("without a key: %d", got.Code)
	}
}

// smallStore accepts results of at most 1,000 bytes.
type smallStore struct{ onlyonce.Store }

func (s smallStore) Settle(ctx context.Context, h onlyonce.Hold, st onlyonce.Settlement) error {
	size := len(st.Result.Body) + len(st.Result.Ref)
	for name, values := range st.Result.Header {
		size += len(name) + len(strings.Join(values, ""))
	}
	if size > 1000 {
		return onlyonce.ErrTooLarge
	}
	return s.Store.Settle(ctx, h, st)
}

func TestOutcome_AResponseThatIsTooLargeForTheStoreIsCutAndDoesNotRunAgain(t *testing.T) {
	for name, c := range map[string]struct {
		link, body, ref int
		kept            bool // the header is
	}{
		"the body":            {10, 2000, 0, true},
		"the header":          {2000, 0, 0, false},
		"the header and body": {2000, 2000, 0, false},
		"the ref":             {10, 10, 2000, false},
	} {
		runs := 0
		g := onlyonce.New(smallStore{memstore.New(memstore.Config{})}, onlyonce.Config{})
		h := httponce.Wrap(g, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			runs++
			onlyonce.Current(r.Context()).SetRef(strings.Repeat("r", c.ref))
			w.Header().Set("Link", strings.Repeat("l", c.link))
			w.WriteHeader(201)
			io.WriteString(w, strings.Repeat("b", c.body))
		}), single)
		if first := post(h, "k", "x"); first.Code != 201 || first.Body.Len() != c.body || len(first.Header().Get("Link")) != c.link {
			t.Errorf("%s: the first response is %d with %d bytes", name, first.Code, first.Body.Len())
		}
		again := post(h, "k", "x")
		if again.Code != 201 || again.Body.Len() != 0 || again.Header().Get("Idempotency-Replay") != "omitted" || (again.Header().Get("Link") != "") != c.kept || runs != 1 {
			t.Errorf("%s: a repeat got %d with %v after %d runs", name, again.Code, again.Header(), runs)
		}
		if n := g.InFlight(); n != 0 {
			t.Errorf("%s: %d requests are in flight", name, n)
		}
	}
}
