package httponce_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/internal/rejectedtx"
)

// wrapOrder wraps a handler that writes the row "order" and goes on with rest.
func wrapOrder(s *shop, cfg httponce.Config, rest func(http.ResponseWriter, *http.Request) error) http.Handler {
	g := onlyonce.NewTx(s, onlyonce.Config{})
	return httponce.WrapTx(g, func(w http.ResponseWriter, r *http.Request, tx order) error {
		body, err := io.ReadAll(r.Body)
		tx["order"] = string(body)
		return errors.Join(err, rest(w, r))
	}, cfg)
}

// What a handler in WrapTx does, and what comes of its row, the client's response and the
// response to a repeat.
var endings = []struct {
	name   string
	cfg    httponce.Config
	rest   func(http.ResponseWriter, *http.Request) error
	kept   bool // the row
	status int  // of the response
	body   string
	again  int // runs after the repeat

	forgotten bool // a different request may use the key
}{
	{name: "a response", rest: func(w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(201)
		_, err := io.WriteString(w, "made")
		return err
	}, kept: true, status: 201, body: "made", again: 1},
	{name: "no response", rest: func(http.ResponseWriter, *http.Request) error { return nil }, kept: true, status: 200, again: 1},
	{name: "a response of 404", rest: func(w http.ResponseWriter, _ *http.Request) error {
		http.Error(w, "none", 404)
		return nil
	}, kept: true, status: 404, body: "none\n", again: 1},
	{name: "a response of 401", rest: func(w http.ResponseWriter, _ *http.Request) error {
		http.Error(w, "who", 401)
		return nil
	}, status: 401, body: "who\n", again: 2, forgotten: true},
	{name: "a response of 499", rest: func(w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(499)
		return nil
	}, status: 499, again: 2},
	{name: "a response of 503", rest: func(w http.ResponseWriter, _ *http.Request) error {
		http.Error(w, "down", 503)
		return nil
	}, status: 503, body: "down\n", again: 2},
	{name: "a kept response of 503", cfg: httponce.Config{KeepErrors: true}, rest: func(w http.ResponseWriter, _ *http.Request) error {
		http.Error(w, "down", 503)
		return nil
	}, status: 503, body: "down\n", again: 1},
	{name: "a kept response of 503 after which the outcome would be unknown", cfg: httponce.Config{KeepErrors: true, UnknownStatus: func(int) bool { return true }}, rest: func(w http.ResponseWriter, _ *http.Request) error {
		http.Error(w, "down", 503)
		return nil
	}, status: 503, body: "down\n", again: 1},
	{name: "an error", rest: func(http.ResponseWriter, *http.Request) error { return errBroken }, status: 500, again: 2},
	{name: "an error after a response of 201", rest: func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("X-Made", "1")
		w.WriteHeader(201)
		return errBroken
	}, status: 500, again: 2},
	{name: "an error after a response of 409", rest: func(w http.ResponseWriter, _ *http.Request) error {
		http.Error(w, "sold out", 409)
		return errBroken
	}, status: 409, body: "sold out\n", again: 2},
	{name: "a final error", rest: func(http.ResponseWriter, *http.Request) error { return onlyonce.Final(errBroken) }, status: 500, again: 1},
	{name: "a final error after a response of 409", rest: func(w http.ResponseWriter, _ *http.Request) error {
		http.Error(w, "sold out", 409)
		return onlyonce.Final(errBroken)
	}, status: 409, body: "sold out\n", again: 1},
	{name: "an unknown error", rest: func(http.ResponseWriter, *http.Request) error { return onlyonce.Unknown(errBroken) }, status: 500, again: 2},
	{name: "DontStore", rest: func(_ http.ResponseWriter, r *http.Request) error { httponce.DontStore(r); return nil }, kept: true, status: 200, again: 2, forgotten: true},
	{name: "DontStore and an error", rest: func(_ http.ResponseWriter, r *http.Request) error { httponce.DontStore(r); return errBroken }, status: 500, again: 2, forgotten: true},
	{name: "Unknown", rest: func(_ http.ResponseWriter, r *http.Request) error { httponce.Unknown(r, nil); return nil }, status: 200, again: 2},
	{name: "a response over the limit", cfg: httponce.Config{MaxResponse: 10}, rest: func(w http.ResponseWriter, _ *http.Request) error {
		_, err := w.Write(bytes.Repeat([]byte("x"), 160))
		return err
	}, kept: true, status: 200, again: 1},
	{name: "a response over 16 times the limit", cfg: httponce.Config{MaxResponse: 10}, rest: func(w http.ResponseWriter, _ *http.Request) error {
		w.Write(bytes.Repeat([]byte("x"), 160))
		if _, err := io.WriteString(w, "x"); err == nil {
			panic("written")
		}
		return nil
	}, status: 500, again: 2},
}

func TestWrapTx_RowsAndResponseOfAHandlerAreOneCommit(t *testing.T) {
	for _, e := range endings {
		for _, twice := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, run twice %v", e.name, twice), func(t *testing.T) {
				s, runs := newShop(), 0
				s.Twice = twice
				e.cfg.Tenant = httponce.SingleTenant
				h := wrapOrder(s, e.cfg, func(w http.ResponseWriter, r *http.Request) error {
					runs++
					return e.rest(w, r)
				})
				first := post(h, "k", "tea")
				wantResponse(t, first, e.status, e.body)
				if (s.Row("order") == "tea") != e.kept {
					t.Errorf("the row is %q", s.Row("order"))
				}
				if first.Header().Get("X-Made") != "" {
					t.Error("a header of a response that was rolled back is sent")
				}
				again := post(h, "k", "tea")
				if twice {
					runs /= 2
				}
				if wantResponse(t, again, e.status, e.body); runs != e.again {
					t.Errorf("%d runs, want %d", runs, e.again)
				}
				if replayed := again.Header().Get("Idempotency-Replayed") == "true"; replayed != (e.again == 1) {
					t.Errorf("the repeat has %v", again.Header())
				}
				if forgotten := post(h, "k", "coffee").Code != 422; forgotten != e.forgotten {
					t.Errorf("the key may be used for a different request: %v", forgotten)
				}
			})
		}
	}
}

func TestWrapTx_WithoutAKeyRowsAreCommittedAndNothingIsRecorded(t *testing.T) {
	for _, e := range endings {
		t.Run(e.name, func(t *testing.T) {
			s := newShop()
			e.cfg.Tenant = httponce.SingleTenant
			r := keyed(http.MethodPost, "/orders", "k", "tea")
			r.Header.Del("Idempotency-Key")
			w := serve(wrapOrder(s, e.cfg, e.rest), r)
			wantResponse(t, w, e.status, e.body)
			if (s.Row("order") == "tea") != e.kept {
				t.Errorf("the row is %q", s.Row("order"))
			}
			for rec, err := range s.List(t.Context(), onlyonce.Filter{}) {
				t.Errorf("record %+v, error %v", rec, err)
			}
		})
	}
}

func TestWrapTx_AFailedCommitIsReportedAsSuch(t *testing.T) {
	s := newShop()
	s.Commit = errBroken
	h := wrapOrder(s, single, func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("Location", "/orders/1")
		w.WriteHeader(201)
		return nil
	})
	w := post(h, "k", "tea")
	wantProblem(t, w, 503, "store_unavailable")
	if w.Header().Get("Location") != "" || s.Row("order") != "" {
		t.Fatalf("header %v, row %q", w.Header(), s.Row("order"))
	}
	r := keyed(http.MethodPost, "/orders", "k", "tea")
	r.Header.Del("Idempotency-Key")
	wantProblem(t, serve(h, r), 503, "store_unavailable")
}

// A client that is told that the store is away tries again, and an operator looks at the store.
func TestWrapTx_ATransactionThatTheDatabaseRejectsHasFailed(t *testing.T) {
	for code, cause := range map[string]error{
		"command_failed":     &rejectedtx.Error{Cause: errors.New("a deferred constraint is violated")},
		"response_too_large": &rejectedtx.Error{Cause: onlyonce.ErrTooLarge},
	} {
		s := newShop()
		s.Commit = cause
		in := pay(s, onlyonce.Config{}, made, func(http.ResponseWriter, *http.Request, error) {})
		for _, h := range []http.Handler{wrapOrder(s, single, made), in} {
			wantProblem(t, post(h, "k", "tea"), 500, code)
			if s.Row("order") != "" {
				t.Errorf("%s: row %q", code, s.Row("order"))
			}
		}
	}
}

func TestWrapTx_APanicInATransactionLeavesNothingAndGoesOn(t *testing.T) {
	s := newShop()
	h := wrapOrder(s, single, func(http.ResponseWriter, *http.Request) error { panic(http.ErrAbortHandler) })
	wantPanic(t, http.ErrAbortHandler, func() { post(h, "k", "tea") })
	if s.Row("order") != "" {
		t.Fatal("the row is there")
	}
	if _, err := s.Lookup(t.Context(), onlyonce.ID{Tenant: "single", Operation: "POST /orders", Key: "k"}); !errors.Is(err, onlyonce.ErrNotFound) {
		t.Fatalf("lookup: %v", err)
	}
}

func TestWrapTx_AResponseInATransactionCantStream(t *testing.T) {
	s := newShop()
	h := wrapOrder(s, single, func(w http.ResponseWriter, _ *http.Request) error {
		io.WriteString(w, "a")
		rc := http.NewResponseController(w)
		if err := rc.Flush(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("flush: %v", err)
		}
		if _, _, err := rc.Hijack(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("hijack: %v", err)
		}
		return errBroken
	})
	w := post(h, "k", "tea")
	wantProblem(t, w, 500, "command_failed")
	if w.Flushed {
		t.Error("something was flushed")
	}
}

func TestWrapTx_AResponseShorterThanAnnouncedRollsBack(t *testing.T) {
	for name, rest := range map[string]func(http.ResponseWriter, *http.Request) error{
		"a part":  func(w http.ResponseWriter, r *http.Request) error { cutShort(w, r); return nil },
		"nothing": func(w http.ResponseWriter, _ *http.Request) error { w.Header().Set("Content-Length", "10"); return nil },
		"no outcome of a call": func(w http.ResponseWriter, _ *http.Request) error {
			w.Header().Set("Content-Type", "application/connect+json")
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop()
			w := post(wrapOrder(s, single, rest), "k", "tea")
			wantProblem(t, w, 500, "command_failed")
			if s.Row("order") != "" || w.Header().Get("Content-Length") == "10" {
				t.Errorf("row %q, header %v", s.Row("order"), w.Header())
			}
		})
	}
}

func TestWrapTx_AResponseOverTheLimitIsReplayedWithoutItsBody(t *testing.T) {
	s := newShop()
	h := wrapOrder(s, httponce.Config{Tenant: httponce.SingleTenant, MaxResponse: 3}, func(w http.ResponseWriter, _ *http.Request) error {
		io.WriteString(w, "four")
		return nil
	})
	wantResponse(t, post(h, "k", "tea"), 200, "four")
	again := post(h, "k", "tea")
	if again.Code != 200 || again.Body.Len() != 0 || again.Header().Get("Idempotency-Replay") != "omitted" {
		t.Fatalf("the repeat: %d %q %v", again.Code, again.Body, again.Header())
	}
}

func TestWrapTx_ARunThatIsRepeatedLeavesNoHeader(t *testing.T) {
	s, runs := newShop(), 0
	s.Twice = true
	h := wrapOrder(s, single, func(w http.ResponseWriter, _ *http.Request) error {
		runs++
		w.Header().Set(fmt.Sprint("X-Run-", runs), "1")
		_, err := fmt.Fprint(w, "run ", runs)
		return err
	})
	for range 2 {
		w := post(h, "k", "tea")
		wantResponse(t, w, 200, "run 2")
		if w.Header().Get("X-Run-1") != "" || w.Header().Get("X-Run-2") != "1" {
			t.Errorf("header %v", w.Header())
		}
	}
}

func TestWrapTx_AfterACommitInDoubtTheResponseSaysToRepeat(t *testing.T) {
	s := newShop()
	h := httponce.WrapTx(onlyonce.NewTx(s, onlyonce.Config{HoldUnknown: true}), func(w http.ResponseWriter, _ *http.Request, tx order) error {
		tx["lamp"] = "ordered"
		w.WriteHeader(http.StatusCreated)
		return nil
	}, single)
	s.Commit = onlyonce.ErrInDoubt
	first := post(h, "k", "lamp")
	wantProblem(t, first, 503, "outcome_unknown")
	if !strings.Contains(first.Body.String(), `"retryable":true`) || first.Header().Get("Retry-After") != "1" || strings.Contains(first.Body.String(), "earlier") {
		t.Errorf("%v %s", first.Header(), first.Body)
	}
	unkeyed := serve(h, httptest.NewRequest("POST", "/orders", strings.NewReader("lamp")))
	wantProblem(t, unkeyed, 500, "outcome_unknown")
	if strings.Contains(unkeyed.Body.String(), `"retryable":true`) || strings.Contains(unkeyed.Body.String(), "same key") {
		t.Errorf("without a key: %s", unkeyed.Body)
	}
	s.Commit = nil
	if again := post(h, "k", "lamp"); again.Code != 201 || s.Row("lamp") != "ordered" {
		t.Errorf("the repeat got %d, and the row is %q", again.Code, s.Row("lamp"))
	}
}

func TestWrapTx_AFailureWithoutAKeyReachesTheObserver(t *testing.T) {
	own := errors.New("no such table")
	for name, c := range map[string]struct {
		status  int
		err     error
		begin   error
		commit  error
		outcome onlyonce.Outcome // "": none
	}{
		"a success":                   {status: 201},
		"a response of 401":           {status: 401},
		"an error":                    {err: own, outcome: onlyonce.OutcomeFailed},
		"a response of 500":           {status: 500, outcome: onlyonce.OutcomeFailed},
		"an error after a 422":        {status: 422, err: own},
		"a store that can't begin":    {begin: errBroken, outcome: onlyonce.OutcomeUnavailable},
		"a commit without a response": {commit: onlyonce.ErrInDoubt, outcome: onlyonce.OutcomeUnknown},
	} {
		var events []onlyonce.Event
		s := newShop()
		s.Begin, s.Commit = c.begin, c.commit
		g := onlyonce.NewTx(s, onlyonce.Config{Observer: func(_ context.Context, e onlyonce.Event) { events = append(events, e) }})
		h := httponce.WrapTx(g, func(w http.ResponseWriter, _ *http.Request, _ order) error {
			if c.status != 0 {
				w.WriteHeader(c.status)
			}
			return c.err
		}, single)
		r := keyed(http.MethodPost, "/orders", "", "x")
		r.Header.Del("Idempotency-Key")
		serve(h, r)
		if c.outcome == "" {
			if len(events) != 0 {
				t.Errorf("%s: %+v", name, events)
			}
			continue
		}
		if len(events) != 1 || events[0].Outcome != c.outcome || events[0].Record.ID != (onlyonce.ID{Operation: "POST /orders"}) || c.err != nil && !errors.Is(events[0].Err, own) || events[0].Err == nil {
			t.Errorf("%s: %+v", name, events)
		}
	}
}

// A handler without a key that calls InTx or Transact itself gives the client no advice to repeat either.
func TestProblemOf_ACommitInDoubtWithoutAKeyIsNotToBeRepeated(t *testing.T) {
	s := newShop()
	s.Commit = onlyonce.ErrInDoubt
	g := onlyonce.NewTx(s, onlyonce.Config{})
	err := g.Transact(t.Context(), func(context.Context, order) error { return nil })
	p := httponce.ProblemOf(err)
	if p.Status != 500 || p.Code != httponce.CodeOutcomeUnknown || p.Retryable || strings.Contains(p.Detail, "same key") || !errors.Is(err, onlyonce.ErrInDoubt) {
		t.Errorf("%v is %+v", err, p)
	}
}

// Between the commit of the rows and the record of the middleware around it, the process may die: a
// repeat would then add the rows again.
func TestWrapTx_PanicsInsideAMiddlewareThatProtectsTheSameRequest(t *testing.T) {
	inBody := func([]byte) (string, error) { return "k", nil }
	for name, cfg := range map[string]httponce.Config{
		"a key in the header": {Tenant: httponce.SingleTenant},
		"a key in the body":   {Tenant: httponce.SingleTenant, KeyInBody: inBody},
	} {
		for kind, around := range map[string]func(*shop, http.Handler) http.Handler{
			"Wrap": func(s *shop, h http.Handler) http.Handler {
				return httponce.Wrap(onlyonce.NewTx(s, onlyonce.Config{}).Guard, h, cfg)
			},
			"WrapTx": func(s *shop, h http.Handler) http.Handler {
				return httponce.WrapTx(onlyonce.NewTx(s, onlyonce.Config{}), func(w http.ResponseWriter, r *http.Request, _ order) error {
					h.ServeHTTP(w, r)
					return nil
				}, cfg)
			},
		} {
			t.Run(name+" in "+kind, func(t *testing.T) {
				s := newShop()
				defer func() {
					if text := fmt.Sprint(recover()); !strings.Contains(text, "httponce: WrapTx: a middleware around it") {
						t.Errorf("the panic is %s", text)
					}
					if s.Row("order") != "" {
						t.Error("the row is there")
					}
				}()
				post(around(s, wrapOrder(s, cfg, made)), "k", "tea")
			})
		}
	}
}
