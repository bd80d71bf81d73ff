package httponce_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
)

// pay wraps a handler that calls InTx once, writing the row "order" and then
// rest, and hands the outcome to after.
func pay(s *shop, cfg onlyonce.Config, rest func(http.ResponseWriter, *http.Request) error, after func(http.ResponseWriter, *http.Request, error)) http.Handler {
	g := onlyonce.NewTx(s, cfg)
	return httponce.Wrap(g.Guard, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := httponce.InTx(r, g, func(tx order) error {
			tx["order"] = "paid"
			return rest(w, r)
		})
		after(w, r, err)
	}), single)
}

func made(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Location", "/orders/1")
	w.WriteHeader(201)
	_, err := io.WriteString(w, "<p>made")
	return err
}

func TestInTx_TheRestOfAHandlerCommitsWithItsResponse(t *testing.T) {
	s, runs := newShop(), 0
	s.Twice = true
	h := pay(s, onlyonce.Config{}, made, func(w http.ResponseWriter, r *http.Request, err error) {
		runs++
		if err != nil {
			t.Errorf("InTx: %v", err)
		}
		if rec, err := s.Lookup(t.Context(), onlyonce.Current(r.Context()).Record().ID); err != nil || rec.State != onlyonce.StateCompleted {
			t.Errorf("after InTx the record is %+v, %v", rec, err)
		}
		if _, err := io.WriteString(w, "late"); err == nil {
			t.Error("a write after InTx is taken")
		}
		if err := http.NewResponseController(w).Flush(); err == nil {
			t.Error("a flush after InTx is taken")
		}
		w.Header().Set("X-Late", "1")
		w.WriteHeader(500)
	})
	for _, replayed := range []string{"", "true"} {
		w := post(h, "k", "tea")
		wantResponse(t, w, 201, "<p>made")
		head := w.Header()
		if head.Get("Location") != "/orders/1" || head.Get("X-Late") != "" || head.Get("Idempotency-Replayed") != replayed ||
			head.Get("Idempotency-Expires") == "" || head.Get("Content-Type") != "text/html; charset=utf-8" {
			t.Errorf("header %v", head)
		}
	}
	if runs != 1 || s.Row("order") != "paid" {
		t.Fatalf("%d runs, row %q", runs, s.Row("order"))
	}
}

func TestInTx_AFlushInATransactionLeavesTheStatusOpen(t *testing.T) {
	s := newShop()
	flushed := func(w http.ResponseWriter, r *http.Request) error {
		if err := http.NewResponseController(w).Flush(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("Flush: %v", err)
		}
		return made(w, r)
	}
	in := pay(s, onlyonce.Config{}, flushed, func(http.ResponseWriter, *http.Request, error) {})
	all := httponce.WrapTx(onlyonce.NewTx(s, onlyonce.Config{}), func(w http.ResponseWriter, r *http.Request, _ order) error { return flushed(w, r) }, single)
	wantResponse(t, post(in, "k", "tea"), 201, "<p>made")
	wantResponse(t, post(all, "l", "tea"), 201, "<p>made")
}

// A slowShop lets something happen between a function's return and its commit.
type slowShop struct {
	*shop
	before func()
}

func (s *slowShop) SettleTx(ctx context.Context, h onlyonce.Hold, fn func(context.Context, order) (onlyonce.Settlement, error)) error {
	return s.shop.SettleTx(ctx, h, func(ctx context.Context, tx order) (onlyonce.Settlement, error) {
		defer s.before()
		return fn(ctx, tx)
	})
}

func TestInTx_AWriteDuringTheCommitIsRejected(t *testing.T) {
	s := newShop()
	s.Twice = true
	slow := &slowShop{shop: s}
	g := onlyonce.NewTx(slow, onlyonce.Config{})
	h := httponce.Wrap(g.Guard, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		slow.before = func() {
			if _, err := io.WriteString(w, "late"); err == nil {
				t.Error("a write during the commit is taken")
			}
		}
		if err := httponce.InTx(r, g, func(order) error { return made(w, r) }); err != nil {
			t.Errorf("InTx: %v", err)
		}
	}), single)
	for range 2 {
		wantResponse(t, post(h, "k", "tea"), 201, "<p>made")
	}
}

func TestInTx_AnErrorInTheRestOfAHandlerUndoesItAndTheHandlerResponds(t *testing.T) {
	s := newShop()
	g := onlyonce.NewTx(s, onlyonce.Config{})
	h := httponce.Wrap(g.Guard, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Before", "1")
		err := httponce.InTx(r, g, func(tx order) error {
			tx["order"] = "paid"
			return errors.Join(made(w, r), errBroken)
		})
		if !errors.Is(err, errBroken) {
			t.Errorf("InTx: %v", err)
		}
		http.Error(w, "sold out", 409)
	}), single)
	for range 2 {
		w := post(h, "k", "tea")
		wantResponse(t, w, 409, "sold out\n")
		if w.Header().Get("Location") != "" || w.Header().Get("X-Before") != "1" {
			t.Errorf("header %v", w.Header())
		}
	}
	if s.Row("order") != "" {
		t.Fatal("the row is there")
	}
}

func TestInTx_WhatWasWrittenBeforeTheTransactionStays(t *testing.T) {
	s := newShop()
	g := onlyonce.NewTx(s, onlyonce.Config{})
	h := httponce.Wrap(g.Guard, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(202)
		io.WriteString(w, "a")
		_ = httponce.InTx(r, g, func(order) error { io.WriteString(w, "b"); return errBroken })
		io.WriteString(w, "c")
		if err := httponce.InTx(r, g, func(order) error { io.WriteString(w, "d"); return nil }); err != nil {
			t.Errorf("InTx: %v", err)
		}
	}), single)
	for range 2 {
		wantResponse(t, post(h, "k", "tea"), 202, "acd")
	}
}

func TestInTx_AnErrorResponseRollsBack(t *testing.T) {
	for name, rest := range map[string]func(http.ResponseWriter, *http.Request) error{
		"503":     func(w http.ResponseWriter, _ *http.Request) error { http.Error(w, "down", 503); return nil },
		"401":     func(w http.ResponseWriter, _ *http.Request) error { http.Error(w, "who", 401); return nil },
		"Unknown": func(_ http.ResponseWriter, r *http.Request) error { httponce.Unknown(r, nil); return nil },
		"too large": func(w http.ResponseWriter, _ *http.Request) error {
			io.WriteString(w, strings.Repeat("x", 16<<20+1))
			return nil
		},
		"a part":  func(w http.ResponseWriter, r *http.Request) error { cutShort(w, r); return nil },
		"nothing": func(w http.ResponseWriter, _ *http.Request) error { w.Header().Set("Content-Length", "10"); return nil },
		"no outcome of a call": func(w http.ResponseWriter, _ *http.Request) error {
			w.Header().Set("Content-Type", "application/connect+json")
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop()
			h := pay(s, onlyonce.Config{}, rest, func(_ http.ResponseWriter, _ *http.Request, err error) {
				if err == nil {
					t.Error("InTx returns no error")
				}
			})
			w := post(h, "k", "tea")
			if s.Row("order") != "" {
				t.Errorf("the row is there, answer %d", w.Code)
			}
			if name == "503" || name == "401" {
				wantResponse(t, w, map[string]int{"503": 503, "401": 401}[name], "")
			}
		})
	}
}

func TestInTx_AFailedCommitIsReportedToTheClient(t *testing.T) {
	s := newShop()
	s.Commit = errBroken
	h := pay(s, onlyonce.Config{}, made, func(_ http.ResponseWriter, _ *http.Request, err error) {
		if !errors.Is(err, onlyonce.ErrUnavailable) {
			t.Errorf("InTx: %v", err)
		}
	})
	w := post(h, "k", "tea")
	wantProblem(t, w, 503, "store_unavailable")
	if w.Header().Get("Location") != "" || s.Row("order") != "" {
		t.Fatalf("header %v, row %q", w.Header(), s.Row("order"))
	}
}

func TestInTx_AHandlerWhoseTransactionDoesNotBeginHasFailed(t *testing.T) {
	s := newShop()
	s.Begin = errBroken
	h := pay(s, onlyonce.Config{}, made, func(w http.ResponseWriter, _ *http.Request, err error) {
		if !errors.Is(err, onlyonce.ErrUnavailable) {
			t.Errorf("InTx: %v", err)
		}
		w.WriteHeader(201)
	})
	w := &tap{httptest.NewRecorder(), func(int) {
		if rec := lookup(t, s, "k"); rec.State != onlyonce.StateFailed {
			t.Errorf("as the response leaves, the record is %+v", rec)
		}
	}}
	h.ServeHTTP(w, keyed(http.MethodPost, "/orders", "k", "tea"))
	wantProblem(t, w.ResponseRecorder, 503, "store_unavailable")
}

func TestInTx_AHandlerThatLostItsLeaseCommitsNothing(t *testing.T) {
	s := newShop()
	g := onlyonce.NewTx(s, onlyonce.Config{})
	h := httponce.Wrap(g.Guard, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := onlyonce.Current(r.Context()).Record()
		hold := onlyonce.Hold{ID: rec.ID, Owner: rec.Owner, Fence: rec.Fence}
		if err := s.Settle(r.Context(), hold, onlyonce.Settlement{}); err != nil { // as if another had taken over
			t.Error(err)
		}
		err := httponce.InTx(r, g, func(tx order) error { tx["order"] = "paid"; return made(w, r) })
		if !errors.Is(err, onlyonce.ErrLost) {
			t.Errorf("InTx: %v", err)
		}
		w.WriteHeader(201)
	}), single)
	wantProblem(t, post(h, "k", "tea"), 409, "request_in_progress")
	if s.Row("order") != "" {
		t.Fatal("the row is there")
	}
}

func TestInTx_WithoutAKeyTheRestOfAHandlerCommitsAlone(t *testing.T) {
	s := newShop()
	h := pay(s, onlyonce.Config{}, made, func(_ http.ResponseWriter, _ *http.Request, err error) {
		if err != nil {
			t.Error(err)
		}
	})
	r := keyed(http.MethodPost, "/orders", "k", "tea")
	r.Header.Del("Idempotency-Key")
	wantResponse(t, serve(h, r), 201, "<p>made")
	if s.Row("order") != "paid" {
		t.Fatal("the row is not there")
	}
}

func TestInTx_IsRejectedWhereItCantBeKept(t *testing.T) {
	s := newShop()
	g := onlyonce.NewTx(s, onlyonce.Config{})
	rejected := func(r *http.Request) {
		if err := httponce.InTx(r, g, func(order) error { t.Error("fn ran"); return nil }); err == nil {
			t.Error("InTx returns no error")
		}
	}
	inside := httponce.WrapTx(g, func(_ http.ResponseWriter, r *http.Request, _ order) error { rejected(r); return nil }, single)
	wantResponse(t, post(inside, "inside", "tea"), 200, "")
	again := pay(s, onlyonce.Config{}, made, func(_ http.ResponseWriter, r *http.Request, _ error) { rejected(r) })
	wantResponse(t, post(again, "again", "tea"), 201, "<p>made")
	streamed := httponce.Wrap(g.Guard, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		rejected(r)
	}), single)
	wantResponse(t, post(streamed, "streamed", "tea"), 200, "")
	var kept *http.Request
	returned := httponce.Wrap(g.Guard, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { kept = r }), single)
	wantResponse(t, post(returned, "returned", "tea"), 200, "")
	rejected(kept)
}

func TestInTx_OfAnotherGuardCommitsNothing(t *testing.T) {
	s := newShop()
	other := onlyonce.NewTx(newShop(), onlyonce.Config{})
	h := httponce.Wrap(onlyonce.New(s, onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := httponce.InTx(r, other, func(order) error { t.Error("fn ran"); return nil })
		if err == nil || !strings.Contains(err.Error(), "another Guard") {
			t.Errorf("InTx: %v", err)
		}
		w.WriteHeader(201)
	}), single)
	if w := post(h, "k", "tea"); w.Code < 500 {
		t.Errorf("the response has status %d", w.Code)
	}
}

func TestInTx_APanicInTheRestOfAHandlerLeavesItsOutcomeUnknown(t *testing.T) {
	s := newShop()
	h := pay(s, onlyonce.Config{}, func(http.ResponseWriter, *http.Request) error { panic("boom") }, nil)
	wantPanic(t, "boom", func() { post(h, "k", "tea") })
	if rec := lookup(t, s, "k"); rec.State != onlyonce.StateUnknown || rec.Error != "panic: boom" || s.Row("order") != "" {
		t.Fatalf("record %+v", rec)
	}
}

// A framework recovers a panic of a handler and responds with 500. The rows of the
// transaction are gone, so the response that was to be committed with them must be, too.
func TestInTx_APanicThatIsRecoveredInTheHandlerLeavesNothingOfTheTransaction(t *testing.T) {
	s := newShop()
	g := onlyonce.NewTx(s, onlyonce.Config{})
	fails := true
	h := httponce.Wrap(g.Guard, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if recover() != nil {
				w.WriteHeader(500)
			}
		}()
		err := httponce.InTx(r, g, func(tx order) error {
			tx["order"] = "paid"
			err := made(w, r)
			if fails {
				panic("boom")
			}
			return err
		})
		if err != nil {
			t.Errorf("InTx: %v", err)
		}
	}), single)
	w := post(h, "k", "tea")
	wantResponse(t, w, 500, "")
	if w.Header().Get("Location") != "" || s.Row("order") != "" {
		t.Errorf("header %v, row %q", w.Header(), s.Row("order"))
	}
	fails = false
	wantResponse(t, post(h, "k", "tea"), 201, "<p>made")
	if s.Row("order") != "paid" {
		t.Errorf("row %q", s.Row("order"))
	}
}

func TestInTx_AnOutcomeThatIsUnknownStaysSoIfTheTransactionDoesNotBegin(t *testing.T) {
	handlers := map[string]func(r *http.Request, inTx func()){
		"Unknown before InTx":                func(r *http.Request, inTx func()) { httponce.Unknown(r, errBroken); inTx() },
		"Unknown after InTx":                 func(r *http.Request, inTx func()) { inTx(); httponce.Unknown(r, errBroken) },
		"after the attempt's time has ended": func(_ *http.Request, inTx func()) { inTx() },
	}
	for name, handle := range handlers {
		t.Run(name, func(t *testing.T) {
			s := newShop()
			s.Begin = errBroken
			g, runs := onlyonce.NewTx(s, onlyonce.Config{HoldUnknown: true}), 0
			h := httponce.Wrap(g.Guard, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				runs++
				handle(r, func() {
					if err := httponce.InTx(r, g, func(order) error { return made(w, r) }); !errors.Is(err, errBroken) {
						t.Errorf("InTx: %v", err)
					}
				})
				w.WriteHeader(201)
			}), single)
			r := keyed("POST", "/orders", "k", "tea")
			if strings.Contains(name, "time has ended") {
				r = r.WithContext(httponce.WithDeadline(t.Context(), time.Now()))
			}
			first := httptest.NewRecorder()
			h.ServeHTTP(first, r)
			rec := lookup(t, s, "k")
			again := post(h, "k", "tea")
			if first.Code != 500 || !strings.Contains(first.Body.String(), httponce.CodeOutcomeUnknown) || rec.State != onlyonce.StateUnknown || again.Code != 409 || runs != 1 {
				t.Errorf("the response is %d %s, the record is %+v, a repeat gets %d, and the handler ran %d times", first.Code, first.Body, rec, again.Code, runs)
			}
		})
	}
}

func TestInTx_ATransactionThatOutlivesItsHandlerCommitsNothing(t *testing.T) {
	s := newShop()
	began, end, done := make(chan struct{}), make(chan struct{}), make(chan error)
	g := onlyonce.NewTx(s, onlyonce.Config{})
	h := httponce.Wrap(g.Guard, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "left")
		if r.Header.Get("Idempotency-Key") != "k" {
			return
		}
		go func() {
			done <- httponce.InTx(r, g, func(tx order) error {
				close(began)
				<-end
				tx["order"] = "paid"
				return made(w, r)
			})
		}()
		<-began
	}), single)
	wantResponse(t, post(h, "k", "tea"), 200, "left")
	wantResponse(t, post(h, "other", "request"), 200, "left")
	close(end)
	if err := <-done; err == nil || s.Row("order") != "" {
		t.Fatalf("InTx: %v, row %q", err, s.Row("order"))
	}
	wantResponse(t, post(h, "k", "tea"), 200, "left")
}

// An endedWriter is a ResponseWriter like that of HTTP/2 in net/http, whose header can't be used
// after the handler has returned.
type endedWriter struct {
	http.ResponseWriter
	ended bool
}

func (w *endedWriter) Header() http.Header {
	if w.ended {
		panic("Header called after Handler finished")
	}
	return w.ResponseWriter.Header()
}

func TestInTx_ATransactionThatOutlivesItsHandlerLeavesTheResponseWriterAlone(t *testing.T) {
	s := newShop()
	began, end, done := make(chan struct{}), make(chan struct{}), make(chan error)
	g := onlyonce.NewTx(s, onlyonce.Config{})
	h := httponce.Wrap(g.Guard, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		go func() {
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("InTx panicked: %v", p)
					done <- nil
				}
			}()
			done <- httponce.InTx(r, g, func(tx order) error {
				close(began)
				<-end
				tx["order"] = "paid"
				return nil
			})
		}()
		<-began
	}), single)
	w := &endedWriter{ResponseWriter: httptest.NewRecorder()}
	h.ServeHTTP(w, keyed("POST", "/orders", "k", "tea"))
	w.ended = true
	close(end)
	if err := <-done; err == nil || s.Row("order") != "" {
		t.Errorf("InTx: %v, row %q", err, s.Row("order"))
	}
}

func TestOnDiscard_IsCalledWhenAPartOfTheResponseIsDropped(t *testing.T) {
	for name, c := range map[string]struct {
		drop func(r *http.Request, g *onlyonce.TxGuard[order])
		want int
	}{
		"Discard": {func(r *http.Request, _ *onlyonce.TxGuard[order]) { httponce.Discard(r) }, 1},
		"an error in InTx": {func(r *http.Request, g *onlyonce.TxGuard[order]) {
			_ = httponce.InTx(r, g, func(order) error { return errBroken })
		}, 1},
		"a panic in InTx": {func(r *http.Request, g *onlyonce.TxGuard[order]) {
			defer func() { _ = recover() }()
			_ = httponce.InTx(r, g, func(order) error { panic("boom") })
		}, 1},
		"a transaction": {func(r *http.Request, g *onlyonce.TxGuard[order]) {
			_ = httponce.InTx(r, g, func(order) error { return nil })
		}, 0},
		"Discard after a commit": {func(r *http.Request, g *onlyonce.TxGuard[order]) {
			_ = httponce.InTx(r, g, func(order) error { return nil })
			httponce.Discard(r)
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			g, dropped := onlyonce.NewTx(newShop(), onlyonce.Config{}), 0
			post(httponce.Wrap(g.Guard, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				httponce.OnDiscard(r, func() { dropped++ })
				c.drop(r, g)
			}), single), "k", "x")
			if dropped != c.want {
				t.Errorf("called %d times, want %d", dropped, c.want)
			}
		})
	}
	s := newShop()
	s.Twice = true
	g, dropped := onlyonce.NewTx(s, onlyonce.Config{}), 0
	post(httponce.Wrap(g.Guard, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		httponce.OnDiscard(r, func() { dropped++ })
		_ = httponce.InTx(r, g, func(order) error { return nil })
	}), single), "k", "x")
	if dropped != 1 {
		t.Errorf("before a second run, it is called %d times", dropped)
	}
}
