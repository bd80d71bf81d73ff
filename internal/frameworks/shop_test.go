// Package frameworks_test runs the wirings of docs/frameworks.md: those that keep
// the promise, and those that break it.
package frameworks_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// A shop has a handler, counts its runs, and records the events of the Guard's Observer.
type shop struct {
	store *memstore.Store
	guard *onlyonce.Guard
	runs  atomic.Int32

	mu     sync.Mutex
	events []onlyonce.Event
}

func newShop() *shop {
	s := &shop{store: memstore.New(memstore.Config{})}
	s.guard = onlyonce.New(s.store, onlyonce.Config{Observer: func(_ context.Context, e onlyonce.Event) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.events = append(s.events, e)
	}})
	return s
}

// told returns how many decisions had an outcome.
func (s *shop) told(outcome onlyonce.Outcome) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if e.Outcome == outcome {
			n++
		}
	}
	return n
}

// operations returns the operations of the commands that ran.
func (s *shop) operations() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := make(map[string]bool)
	for _, e := range s.events {
		if e.Outcome == onlyonce.OutcomeExecuted {
			found[e.Record.ID.Operation] = true
		}
	}
	return found
}

// run is what every handler here does: it says whether it works, and what it made.
func (s *shop) run(body []byte) (charge string, err error) {
	n := s.runs.Add(1)
	if n == 1 && strings.Contains(string(body), "fail once") {
		return "", fmt.Errorf("run %d failed", n)
	}
	return fmt.Sprintf(`{"charge":%d}`, n), nil
}

// charge is the handler for net/http.
func (s *shop) charge(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	made, err := s.run(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	fmt.Fprint(w, made)
}

// accountOf returns the name of the authenticated caller.
func accountOf(*http.Request) string { return "acme" }

// A reply is a client's response.
type reply struct {
	status   int
	body     string
	replayed bool
}

// A client sends a POST, with a key unless that is empty.
type client func(path, key, body string) reply

func newRequest(path, key, body string) *http.Request {
	r := httptest.NewRequest("POST", path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	return r
}

// of returns a client of a handler of net/http.
func of(h http.Handler) client {
	return func(path, key, body string) reply {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, newRequest(path, key, body))
		return reply{w.Code, w.Body.String(), w.Header().Get("Idempotency-Replayed") == "true"}
	}
}

// A tester has the method with which fiber's apps test requests.
type tester func(r *http.Request) (*http.Response, error)

// ofApp returns a client of a fiber app.
func ofApp(t *testing.T, test tester) client {
	return func(path, key, body string) reply {
		t.Helper()
		resp, err := test(newRequest(path, key, body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return reply{resp.StatusCode, string(text), resp.Header.Get("Idempotency-Replayed") == "true"}
	}
}

const charges = "/accounts/7/charges"

// keepsThePromise checks the behavior that every correct wiring must have.
func keepsThePromise(t *testing.T, wire func(s *shop) client) {
	t.Helper()
	s := newShop()
	send := wire(s)
	first, again := send(charges, "k", "a"), send(charges, "k", "a")
	if first != (reply{201, `{"charge":1}`, false}) || again != (reply{201, `{"charge":1}`, true}) {
		t.Errorf("got %+v, then %+v", first, again)
	}
	if got := send(charges, "k", "b"); got.status != 422 || !strings.Contains(got.body, "idempotency_key_reused") {
		t.Errorf("another body under the key got %+v", got)
	}
	if got := send(charges, "", "a"); got != (reply{201, `{"charge":2}`, false}) {
		t.Errorf("without a key: %+v", got)
	}
	if n := s.runs.Load(); n != 2 {
		t.Errorf("%d runs", n)
	}

	s = newShop()
	send = wire(s)
	failed := send(charges, "k", "fail once")
	next, last := send(charges, "k", "fail once"), send(charges, "k", "fail once")
	if failed.status != 500 || next != (reply{201, `{"charge":2}`, false}) || last != (reply{201, `{"charge":2}`, true}) {
		t.Errorf("a failure got %+v, then %+v, then %+v", failed, next, last)
	}
	if n := s.told(onlyonce.OutcomeUnrecorded); n != 0 {
		t.Errorf("%d responses were not recorded", n)
	}
}

// record returns the record of a key.
func (s *shop) record(t *testing.T, operation string) onlyonce.Record {
	t.Helper()
	rec, err := s.store.Lookup(t.Context(), onlyonce.ID{Tenant: "acme", Operation: operation, Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// wantPanic fails unless f panics with a text that contains part.
func wantPanic(t *testing.T, part string, f func()) {
	t.Helper()
	defer func() {
		if text := fmt.Sprint(recover()); !strings.Contains(text, part) {
			t.Errorf("the panic is %q, want %q", text, part)
		}
	}()
	f()
}

// namesTheRoute checks that the operation is the route, and that a key of one account is not
// accepted for another.
func namesTheRoute(t *testing.T, wire func(s *shop) client, operation string) {
	t.Helper()
	s := newShop()
	send := wire(s)
	send(charges, "k", "a")
	if !s.operations()[operation] {
		t.Errorf("the operations are %v", s.operations())
	}
	if got := send("/accounts/8/charges", "k", "a"); got.status != 422 {
		t.Errorf("the same key for another account got %+v", got)
	}
}
