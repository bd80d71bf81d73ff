package adaptertest

import (
	"context"
	"errors"
	"io"
	"log"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/conform"
	"github.com/onlyonce-go/onlyonce/httponce"
)

// quiet is the log of servers whose handlers panic.
var quiet = log.New(io.Discard, "", 0)

// Run tests an adapter.
func Run(t *testing.T, a Adapter) {
	for name, rule := range map[string]func(*testing.T, Adapter){
		"it keeps the rules of idempotency that can be seen from outside":              a.conforms,
		"a replay is the first response byte for byte":                                 replaysByteForByte,
		"the route is the operation, and the tenant is from the framework's context":   namesTheCommand,
		"an error of the framework is a failure, and a repeat runs again":              failsWithAnError,
		"a failure that is kept is replayed":                                           keepsAFailure,
		"a panic leaves the outcome unknown, wherever the framework recovers":          panics,
		"a response that streams is replayed":                                          streams,
		"handlers around the adapter run for a replay, those inside do not":            orders,
		"a command whose client has gone is finished":                                  survivesItsClient,
		"a request without a key, and a GET, pass through":                             passesThrough,
		"rows and response of a handler in a transaction are committed together":       commits,
		"the response to a part that is rolled back is dropped, and another is sent":   dropsWhatIsRolledBack,
		"what a handler discards is dropped":                                           discards,
		"a response that is longer than is stored arrives, and its body is not stored": outgrows,
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) { rule(t, a) })
	}
}

func (a Adapter) conforms(t *testing.T, _ Adapter) {
	s := a.newShop(t, onlyonce.Config{}, nil)
	conform.Test(t, conform.Target{
		URL:      s.url + "/accounts/7/charges",
		OtherURL: "/accounts/8/charges",
		Header:   http.Header{"X-Account": {"7"}},
		Other:    http.Header{"X-Account": {"8"}},
		Body:     []byte(`{"note":"a lamp"}`),
		Fresh:    "/note",
	}, conform.Config{})
}

func replaysByteForByte(t *testing.T, a Adapter) {
	s := a.newShop(t, onlyonce.Config{}, nil)
	first, again := s.post("7", "k", "a"), s.post("7", "k", "a")
	s.wantReply(first, 201, `{"note":"a","run":"I"}`, false)
	s.wantReply(again, 201, `{"note":"a","run":"I"}`, true)
	for _, h := range []http.Header{first.header, again.header} {
		for _, name := range []string{"Date", "X-Outer", "Idempotency-Replayed", "Idempotency-Expires"} {
			h.Del(name)
		}
	}
	if first.body != again.body || !maps.EqualFunc(first.header, again.header, equal) {
		t.Errorf("the first response was %v %q, the replay is %v %q", first.header, first.body, again.header, again.body)
	}
	s.wantReply(s.post("7", "k", "b"), 422, httponce.CodeKeyReused, false)
	s.wantRuns(1)
	a.wantState(s, onlyonce.StateCompleted)
}

func equal(a, b []string) bool { return strings.Join(a, "\n") == strings.Join(b, "\n") }

func namesTheCommand(t *testing.T, a Adapter) {
	s := a.newShop(t, onlyonce.Config{}, nil)
	s.post("7", "k", "a")
	a.wantState(s, onlyonce.StateCompleted) // its record has the route and the tenant
	s.wantReply(s.post("8", "k", "a"), 201, `"II"`, false)
	s.wantReply(s.post("nobody", "k", "a"), 401, httponce.CodeTenantMissing, false)
	s.wantRuns(2)

	named := a.newShop(t, onlyonce.Config{}, func(s *shop) {
		s.app.Config.Operation = func(r *http.Request) string { return "charge" }
	})
	named.post("7", "k", "a")
	if _, err := named.store.Lookup(t.Context(), onlyonce.ID{Tenant: "7", Operation: "charge", Key: "k"}); err != nil {
		t.Error(err)
	}
}

var errBroken = errors.New("the bank is closed")

// failOnce is a handler whose first run does act.
func failOnce(s *shop, act Action) {
	first := true
	s.app.Handle = func(Call) Action {
		if first {
			first = false
			return act
		}
		return Action{}
	}
}

func failsWithAnError(t *testing.T, a Adapter) {
	s := a.newShop(t, onlyonce.Config{}, func(s *shop) { failOnce(s, Action{Err: errBroken}) })
	s.wantReply(s.post("7", "k", "a"), 500, "", false)
	a.wantState(s, onlyonce.StateFailed)
	s.wantReply(s.post("7", "k", "a"), 201, `"II"`, false)
	s.wantReply(s.post("7", "k", "a"), 201, `"II"`, true)
	s.wantRuns(2)
}

func keepsAFailure(t *testing.T, a Adapter) {
	s := a.newShop(t, onlyonce.Config{}, func(s *shop) {
		s.app.Config.KeepErrors = true
		failOnce(s, Action{Status: 503, Body: `{"why":"closed"}`})
	})
	s.wantReply(s.post("7", "k", "a"), 503, `{"why":"closed"}`, false)
	s.wantReply(s.post("7", "k", "a"), 503, `{"why":"closed"}`, true)
	s.wantRuns(1)
}

func panics(t *testing.T, a Adapter) {
	for _, recovery := range []Position{Nowhere, Outside, Inside} {
		if recovery == Nowhere && a.NoPanic || recovery == Inside && a.NoRecoveryInside {
			continue
		}
		t.Run("recovery "+string(recovery), func(t *testing.T) {
			s := a.newShop(t, onlyonce.Config{HoldUnknown: true}, func(s *shop) {
				s.app.Recovery = recovery
				failOnce(s, Action{Panic: "half done"})
			})
			got, err := s.send(t.Context(), http.MethodPost, "7", "k", "a")
			if (err == nil) != (recovery != Nowhere) || err == nil && got.status != 500 {
				t.Errorf("the client got %d, %v", got.status, err)
			}
			a.wantState(s, onlyonce.StateUnknown)
			s.wantReply(s.post("7", "k", "a"), 409, httponce.CodeOutcomeUnknown, false)
			s.wantRuns(1)
		})
	}
}

func streams(t *testing.T, a Adapter) {
	s := a.newShop(t, onlyonce.Config{}, func(s *shop) {
		s.app.Handle = func(Call) Action { return Action{Chunks: []string{"one, ", "two, ", "three"}} }
	})
	first := s.post("7", "k", "a")
	s.wantReply(first, 200, "one, two, three", false)
	if streamed := first.header.Get("Idempotency-Expires") == ""; streamed == a.NoStream {
		t.Errorf("the response streamed: %v", streamed)
	}
	s.wantReply(s.post("7", "k", "a"), 200, "one, two, three", true)
	s.wantRuns(1)
}

func orders(t *testing.T, a Adapter) {
	s := a.newShop(t, onlyonce.Config{}, nil)
	for repeat, outer := range []string{"*", "**", "***"} {
		got := s.post("7", "k", "a")
		if got.header.Get("X-Outer") != outer || got.header.Get("X-Inner") != "*" || got.replayed() != (repeat > 0) {
			t.Errorf("response %d has %v", repeat, got.header)
		}
	}
	s.wantRuns(1)
}

func survivesItsClient(t *testing.T, a Adapter) {
	ctx, leave := context.WithCancel(t.Context())
	goOn := make(chan struct{})
	s := a.newShop(t, onlyonce.Config{}, func(s *shop) {
		s.app.Handle = func(c Call) Action {
			leave()
			<-goOn
			if c.Context.Err() != nil {
				return Action{Err: c.Context.Err()}
			}
			return Action{}
		}
	})
	if _, err := s.send(ctx, http.MethodPost, "7", "k", "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("the client got %v", err)
	}
	close(goOn)
	if e := <-s.ended; e.Outcome != onlyonce.OutcomeExecuted {
		t.Errorf("the command ended as %s, %v", e.Outcome, e.Err)
	}
	s.wantReply(s.post("7", "k", "a"), 201, `"I"`, true)
	s.wantRuns(1)
}

func passesThrough(t *testing.T, a Adapter) {
	s := a.newShop(t, onlyonce.Config{}, nil)
	for range 2 {
		s.wantReply(s.post("7", "", "a"), 201, "", false)
		if got, err := s.send(t.Context(), http.MethodGet, "7", "k", ""); err != nil || got.status != 201 {
			t.Errorf("a GET got %d, %v", got.status, err)
		}
	}
	s.wantRuns(4)
	s = a.newShop(t, onlyonce.Config{}, func(s *shop) { s.app.Config.Required = true })
	s.wantReply(s.post("7", "", "a"), 400, httponce.CodeKeyMissing, false)
	s.wantRuns(0)
}

func commits(t *testing.T, a Adapter) {
	if a.NoTx {
		t.Skip("there is no handler in a transaction")
	}
	for name, twice := range map[string]bool{"at once": false, "after a serialization failure": true} {
		t.Run(name, func(t *testing.T) {
			s := a.newShop(t, onlyonce.Config{}, func(s *shop) { s.app.Tx, s.store.Twice = &onlyonce.TxGuard[Tx]{}, twice })
			first, again := s.post("7", "k", "a"), s.post("7", "k", "a")
			s.wantReply(first, 201, `{"note":"a"`, false)
			s.wantReply(again, 201, first.body, true)
			if s.store.Row("order") != "a" {
				t.Errorf("the row is %q", s.store.Row("order"))
			}
			s.wantReply(s.post("7", "", "b"), 201, `{"note":"b"`, false)
			if s.store.Row("order") != "b" {
				t.Errorf("the row is %q", s.store.Row("order"))
			}
			a.wantState(s, onlyonce.StateCompleted)
		})
	}
	for name, act := range map[string]Action{"an error": {Err: errBroken}, "a status": {Status: 500}} {
		t.Run("after "+name, func(t *testing.T) {
			s := a.newShop(t, onlyonce.Config{}, func(s *shop) {
				s.app.Tx = &onlyonce.TxGuard[Tx]{}
				failOnce(s, act)
			})
			s.wantReply(s.post("7", "k", "a"), 500, "", false)
			a.wantState(s, onlyonce.StateFailed)
			if s.store.Row("order") != "" {
				t.Error("the row was committed")
			}
			s.wantReply(s.post("7", "k", "a"), 201, "", false)
			if s.store.Row("order") != "a" {
				t.Errorf("the row is %q", s.store.Row("order"))
			}
		})
	}
}

func outgrows(t *testing.T, a Adapter) {
	long := strings.Repeat("a", 10_000)
	s := a.newShop(t, onlyonce.Config{}, func(s *shop) {
		s.app.Config.MaxResponse = 1000
		s.app.Handle = func(Call) Action { return Action{Status: 201, Body: long} }
	})
	s.wantReply(s.post("7", "k", "a"), 201, long, false)
	again := s.post("7", "k", "a")
	s.wantReply(again, 201, "", true)
	if again.body != "" || again.header.Get("Idempotency-Replay") != "omitted" {
		t.Errorf("the replay is %v %q", again.header, again.body)
	}
	s.wantRuns(1)
}

func discards(t *testing.T, a Adapter) {
	if a.NoRequest {
		t.Skip("the handler has no request of net/http")
	}
	s := a.newShop(t, onlyonce.Config{}, func(s *shop) {
		first := true
		s.app.Handle = func(c Call) Action {
			if !first {
				return Action{}
			}
			first = false
			c.Respond(201, `{"dropped":true}`)
			if !httponce.Discard(c.Request) {
				t.Error("the response was not discarded")
			}
			return Action{Err: errBroken}
		}
	})
	got := s.post("7", "k", "a")
	if s.wantReply(got, 500, "", false); strings.Contains(got.body, "dropped") {
		t.Errorf("the client got %q", got.body)
	}
	a.wantState(s, onlyonce.StateFailed)
	s.wantReply(s.post("7", "k", "a"), 201, `"II"`, false)
}

func dropsWhatIsRolledBack(t *testing.T, a Adapter) {
	if a.NoRequest {
		t.Skip("the handler has no request of net/http")
	}
	for name, twice := range map[string]bool{"at once": false, "after a serialization failure": true} {
		t.Run(name, func(t *testing.T) {
			s := a.newShop(t, onlyonce.Config{}, func(s *shop) {
				s.store.Twice = twice
				first := true
				s.app.Handle = func(c Call) Action {
					fails := first
					first = false
					err := httponce.InTx(c.Request, s.guard, func(tx Tx) error {
						tx["order"] = c.Note
						if c.Respond(202, `{"accepted":true}`); fails {
							return errBroken
						}
						return nil
					})
					if err != nil {
						return Action{Err: err}
					}
					return Action{Status: 500, Body: `{"too":"late"}`}
				}
			})
			got := s.post("7", "k", "a")
			if s.wantReply(got, 500, "", false); strings.Contains(got.body, "accepted") {
				t.Errorf("the client got %q", got.body)
			}
			a.wantState(s, onlyonce.StateFailed)
			if s.store.Row("order") != "" {
				t.Error("the row was committed")
			}
			for repeat := range 2 {
				s.wantReply(s.post("7", "k", "a"), 202, `{"accepted":true}`, repeat > 0)
			}
			if s.store.Row("order") != "a" {
				t.Errorf("the row is %q", s.store.Row("order"))
			}
		})
	}
}
