package cryptstore

import (
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func TestSummary_IsEncryptedAndBoundToItsCommand(t *testing.T) {
	s, inner := newStore(t, Config{})
	c := hazard.Claim("k")
	c.Summary = "POST /v1/payments /amount=5"
	if _, err := s.Claim(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	stored, err := inner.Lookup(t.Context(), c.ID)
	if err != nil || stored.Summary == "" || strings.Contains(stored.Summary, "payments") {
		t.Fatalf("the store has the summary %q and error %v, want an encrypted one", stored.Summary, err)
	}
	for name, summary := range map[string]string{
		"moved":         stored.Summary,
		"cut":           stored.Summary[:len(stored.Summary)-4],
		"not encrypted": "POST /v1/refunds",
	} {
		other := hazard.Claim(name)
		other.Summary = summary
		if _, err := inner.Claim(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		r, err := s.Lookup(t.Context(), other.ID)
		if err != nil || r.Corrupt || strings.Contains(r.Summary, "refunds") || strings.Contains(r.Summary, "payments") || r.Summary == "" {
			t.Errorf("%s: got %+v and error %v, want a sentence instead of the summary", name, r, err)
		}
	}
}

func TestSummary_WithoutItsKeyTheCommandRuns(t *testing.T) {
	first, second := testKey(t, "a", 1), testKey(t, "b", 2)
	inner := memstore.New(memstore.Config{})
	c := hazard.Claim("k")
	c.Summary, c.TakeUnknown = "POST /v1/payments", true
	c.Lease = 1
	if _, err := New(Config{Keys: keysOf(t, first)}).Wrap(inner).Claim(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	s := New(Config{Keys: keysOf(t, second)}).Wrap(inner)
	again := hazard.Claim("k")
	again.TakeUnknown = true
	r, err := s.Claim(t.Context(), again)
	if err != nil || r.Owner != again.Owner || !strings.Contains(r.Summary, "can't be shown") {
		t.Errorf("got %+v and error %v, want the command and a sentence instead of the summary", r, err)
	}
}
