package dynamostore_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/dynamostore"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
)

func settlementOf(size int) onlyonce.Settlement {
	st := hazard.Completed
	st.Result.Body = bytes.Repeat([]byte("0123456789abcdef"), size/16)
	return st
}

func TestStore_ALargeResultIsReplayedWhole(t *testing.T) {
	t.Parallel()
	_, client, s := migrated(t)
	for name, size := range map[string]int{"one item": 380 << 10, "two pieces": 500 << 10, "many pieces": 6<<20 + 16} {
		c := hazard.Claim(name)
		r, err := s.Claim(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		st := settlementOf(size)
		if err := s.Renew(t.Context(), hazard.Hold(r), time.Minute, map[string][]byte{"a": st.Result.Body[:size/3]}); err != nil {
			t.Fatal(err)
		}
		if err := s.Renew(t.Context(), hazard.Hold(r), 10*time.Minute, map[string][]byte{"b": st.Result.Body[:size/3]}); err != nil {
			t.Fatal(err)
		}
		if err := s.Settle(t.Context(), hazard.Hold(r), st); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for name, s := range map[string]*dynamostore.Store{"the process": s, "another": open(t, client, dynamostore.Config{})} {
			if r, err := s.Claim(t.Context(), hazard.Claim(c.ID.Key)); err != nil || !bytes.Equal(r.Result.Body, st.Result.Body) || len(r.Steps["b"]) != size/3 || len(r.Steps["a"]) != size/3 {
				t.Errorf("%s: a repeat got %d bytes, error %v", name, len(r.Result.Body), err)
			}
		}
		now, err := s.Lookup(t.Context(), c.ID)
		if err == nil {
			err = s.Resolve(t.Context(), now, onlyonce.Settlement{})
		}
		if err != nil {
			t.Fatal(err)
		}
		if left := keys(t, client, "p/"); len(left) > 0 {
			t.Errorf("%s: %d pieces are left of a record that is deleted", name, len(left))
		}
	}
}

// Pieces that a late attempt has written before it finds that it is lost must not stay.
func TestStore_ALateLargeResultLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	_, client, s := migrated(t)
	r, err := s.Claim(t.Context(), hazard.Claim("k"))
	if err != nil {
		t.Fatal(err)
	}
	if err := open(t, client, dynamostore.Config{}).Settle(t.Context(), hazard.Hold(r), onlyonce.Settlement{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Settle(t.Context(), hazard.Hold(r), settlementOf(2<<20)); !errors.Is(err, onlyonce.ErrLost) {
		t.Errorf("settle: %v", err)
	}
	if left := keys(t, client, "p/"); len(left) > 0 {
		t.Errorf("%d pieces are left", len(left))
	}
}

func TestStore_ARecordThatIsTooLargeIsRejectedAndChangesNothing(t *testing.T) {
	t.Parallel()
	_, _, s := migrated(t)
	r, err := s.Claim(t.Context(), hazard.Claim("k"))
	if err != nil {
		t.Fatal(err)
	}
	large := settlementOf(16<<20 + 16)
	if err := s.Settle(t.Context(), hazard.Hold(r), large); !errors.Is(err, onlyonce.ErrTooLarge) {
		t.Errorf("settle: %v", err)
	}
	if err := s.Renew(t.Context(), hazard.Hold(r), time.Minute, map[string][]byte{"a": large.Result.Body}); !errors.Is(err, onlyonce.ErrTooLarge) {
		t.Errorf("renew: %v", err)
	}
	id := hazard.Claim(strings.Repeat("k", 64<<10))
	if _, err := s.Claim(t.Context(), id); !errors.Is(err, onlyonce.ErrTooLarge) {
		t.Errorf("claim: %v", err)
	}
	if now, err := s.Lookup(t.Context(), r.ID); err != nil || now.State != onlyonce.StateProcessing || now.Fence != r.Fence {
		t.Errorf("the record is %+v, error %v", now, err)
	}
	if err := s.Settle(t.Context(), hazard.Hold(r), hazard.Completed); err != nil {
		t.Errorf("settle with less: %v", err)
	}
}
