package httponce_test

import (
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
)

// A server behind onlyonce proxy may protect its requests itself. When a person has decided there, the
// client must get the response.
func TestWrap_ACommandThatAServerInsideHoldsForAPersonHasNoResponseYet(t *testing.T) {
	var asked atomic.Int32
	inside := single
	inside.Operation = func(*http.Request) string { return "inside" }
	inner := httponce.Wrap(newGuard(onlyonce.Config{HoldUnknown: true}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		httponce.Unknown(r, nil)
		w.WriteHeader(502)
	}), inside)
	outer := httponce.Wrap(newGuard(onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		inner.ServeHTTP(w, r)
	}), single)
	if got := post(outer, "k", "x"); got.Code != 502 {
		t.Fatalf("got %d", got.Code)
	}
	for range 2 {
		got := post(outer, "k", "x")
		wantProblem(t, got, 409, "outcome_unknown")
		if got.Header().Get("Idempotency-Replayed") != "" {
			t.Error("the rejection is a replay")
		}
	}
	if asked.Load() != 3 {
		t.Errorf("the server inside was asked %d times", asked.Load())
	}
}

// A command whose outcome is unknown is not one that has not been sent, and has not failed: it is held if
// the Guard says so, and otherwise runs as the next attempt.
func TestWrap_AResponseThatSaysThatTheOutcomeIsUnknownLeavesItUnknown(t *testing.T) {
	cfg := single
	cfg.StoreStatus = func(status int) bool { return status < 300 } // no other response counts
	cfg.KeepErrors = true
	held := httponce.ProblemOf(onlyonce.ErrUnknown)
	failed := held
	failed.Status = 500
	for _, p := range []httponce.Problem{held, failed} {
		for _, hold := range []bool{true, false} {
			var attempts []int
			h := httponce.Wrap(newGuard(onlyonce.Config{HoldUnknown: hold}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				attempts = append(attempts, onlyonce.Current(r.Context()).Number())
				p.ServeHTTP(w, r)
			}), cfg)
			wantProblem(t, post(h, "k", "x"), p.Status, "outcome_unknown")
			post(h, "k", "x")
			want := []int{1, 2}
			if hold {
				want = want[:1]
			}
			if !slices.Equal(attempts, want) {
				t.Errorf("%d, hold %v: attempts %v, want %v", p.Status, hold, attempts, want)
			}
		}
	}
}

// A server inside whose commit is in doubt finds out for a repeat, so that one must reach it.
func TestWrap_AServerInsideThatAsksForARepeatGetsIt(t *testing.T) {
	for _, p := range []httponce.Problem{
		httponce.ProblemOf(onlyonce.ErrInDoubt),
		{Code: httponce.CodeOutcomeUnknown, Status: 500, Retryable: true},
	} {
		runs := 0
		h := httponce.Wrap(newGuard(onlyonce.Config{HoldUnknown: true}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if runs++; runs == 1 {
				p.ServeHTTP(w, r)
			}
		}), single)
		wantProblem(t, post(h, "k", "x"), p.Status, "outcome_unknown")
		if got := post(h, "k", "x"); got.Code != 200 || runs != 2 {
			t.Errorf("%d: the repeat has %d %s after %d runs", p.Status, got.Code, got.Body, runs)
		}
	}
}

func TestWrap_ARequestOfWhichAServerInsideDidNotGetAllIsNotStored(t *testing.T) {
	for _, c := range []struct {
		status int
		kind   string
		body   string
		stored bool
	}{
		{400, "application/problem+json", `{"code":"body_unreadable","retryable":true}`, false},
		{400, "application/problem+json; charset=utf-8", `{"code":"body_unreadable"}`, false},
		{400, "application/problem+json", `{"code":"invalid","retryable":true}`, true},
		{422, "application/problem+json", `{"code":"body_unreadable"}`, true},
		{409, "application/problem+json", `{"code":"body_unreadable"}`, true},
		{400, "application/problem+json", `{"code":"outcome_unknown","retryable":false}`, true},
		{400, "application/json", `{"code":"body_unreadable"}`, true},
		{400, "application/problem+json", `{"code":`, true},
	} {
		var runs atomic.Int32
		h := httponce.Wrap(newGuard(onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			runs.Add(1)
			w.Header().Set("Content-Type", c.kind)
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.body)
		}), single)
		for range 2 {
			wantResponse(t, post(h, "k", "x"), c.status, c.body)
		}
		if stored := runs.Load() == 1; stored != c.stored {
			t.Errorf("%d %s: %d runs", c.status, c.body, runs.Load())
		}
	}
}
