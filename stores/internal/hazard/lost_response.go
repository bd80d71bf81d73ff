package hazard

import (
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// A Server says how a test loses the responses of a server to the calls of a store.
type Server struct {
	Address string

	// Open opens a store whose client reaches the server at an address. Its calls last for
	// as long as a test may.
	Open func(t *testing.T, address string) Store

	// Version returns a text that differs after every change of a record, and only then.
	Version func(t *testing.T, id onlyonce.ID) string

	// Sends returns a text of the request that makes a change, and of no other request: name
	// is the call's, owner that of a claim, and version that of the record before. A renewal
	// stores "a step".
	Sends func(name, owner, version string) string
}

// CheckLostResponses checks that a call whose response was lost finds its own write,
// and that it takes effect once. observer is a store that always reaches the server.
func CheckLostResponses(t *testing.T, server Server, observer Store) {
	t.Helper()
	for _, name := range []string{"claim", "renew", "settle", "release", "resolve", "delete"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := observer.Claim(t.Context(), Claim(name))
			if err == nil && (name == "claim" || name == "resolve" || name == "delete") {
				r.State = onlyonce.StateFailed
				err = observer.Settle(t.Context(), Hold(r), onlyonce.Settlement{State: r.State})
			}
			if err != nil {
				t.Fatal(err)
			}
			w := NewWay(t, server.Address)
			s := server.Open(t, w.Address())
			if _, err := s.Claim(t.Context(), Claim(name)); err != nil { // from now on, the store knows the command
				t.Fatal(err)
			}
			before, claim := server.Version(t, r.ID), Claim(name)
			claim.RetryFailed = true
			w.Deafen(server.Sends(name, claim.Owner, before))
			done := make(chan error, 1)
			go func() { done <- change(t, s, name, claim, r) }()
			after := before
			for after == before {
				time.Sleep(time.Millisecond)
				after = server.Version(t, r.ID)
			}
			w.Cut()
			w.Open()
			if err := <-done; err != nil {
				t.Errorf("the call: %v", err)
			}
			if last := server.Version(t, r.ID); name != "renew" && last != after {
				t.Errorf("the call was stored twice, as %s and %s", after, last)
			}
		})
	}
}

// change makes the call of a name on a record: claim is for a claim.
func change(t *testing.T, s Store, name string, claim onlyonce.Claim, r onlyonce.Record) error {
	switch name {
	case "claim":
		now, err := s.Claim(t.Context(), claim)
		if now.Owner != claim.Owner || now.Attempt != 2 || now.Fence <= r.Fence {
			t.Errorf("the claim got %+v", now)
		}
		return err
	case "renew":
		return s.Renew(t.Context(), Hold(r), time.Hour, map[string][]byte{"a step": []byte("1")})
	case "settle":
		return s.Settle(t.Context(), Hold(r), Completed)
	case "release":
		return s.Settle(t.Context(), Hold(r), onlyonce.Settlement{})
	case "resolve":
		return s.Resolve(t.Context(), r, Completed)
	}
	return s.Resolve(t.Context(), r, onlyonce.Settlement{})
}
