package records

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
)

func TestRecordsRm_ARecordThatChangedSinceItWasShownIsNotDeleted(t *testing.T) {
	ctx := t.Context()
	completed := onlyonce.Settlement{State: onlyonce.StateCompleted, Keep: time.Hour}
	unknown := onlyonce.Settlement{State: onlyonce.StateUnknown}
	for name, c := range map[string]struct {
		shown  func(*testing.T, onlyonce.Store) onlyonce.Hold
		change func(s onlyonce.Store, h onlyonce.Hold) error
		says   string
	}{
		"the attempt that was taken for dead ended late": {
			lapsed,
			func(s onlyonce.Store, h onlyonce.Hold) error { return s.Settle(ctx, h, completed) },
			"nothing was deleted: the record was processing (lapsed) when it was shown, and is completed now",
		},
		"it renewed its lease": {
			lapsed,
			func(s onlyonce.Store, h onlyonce.Hold) error { return s.Renew(ctx, h, time.Hour, nil) },
			"nothing was deleted: an attempt holds the command",
		},
		"another attempt took over and ended": {
			lapsed,
			func(s onlyonce.Store, h onlyonce.Hold) error {
				r, err := s.Claim(ctx, onlyonce.Claim{ID: h.ID, Owner: "other", SkipFingerprint: true, Lease: time.Hour, TakeUnknown: true})
				if err != nil {
					return err
				}
				return s.Settle(ctx, onlyonce.Hold{ID: h.ID, Owner: r.Owner, Fence: r.Fence}, unknown)
			},
			"nothing was deleted: an attempt began",
		},
		"someone decided about it": {
			doubtful,
			func(s onlyonce.Store, h onlyonce.Hold) error {
				return s.(resolver).Resolve(ctx, onlyonce.Record{ID: h.ID, Fence: h.Fence, State: onlyonce.StateUnknown}, completed)
			},
			"nothing was deleted: an attempt began or ended, or someone resolved the record",
		},
		"someone decided as it was": {
			doubtful,
			func(s onlyonce.Store, h onlyonce.Hold) error {
				return s.(resolver).Resolve(ctx, onlyonce.Record{ID: h.ID, Fence: h.Fence, State: onlyonce.StateUnknown}, unknown)
			},
			"nothing was deleted: an attempt began or ended, or someone resolved the record",
		},
		"it is gone": {
			doubtful,
			func(s onlyonce.Store, h onlyonce.Hold) error {
				return s.(resolver).Resolve(ctx, onlyonce.Record{ID: h.ID, Fence: h.Fence, State: onlyonce.StateUnknown}, onlyonce.Settlement{})
			},
			"nothing was deleted: the record no longer exists",
		},
		"nothing changed": {lapsed, func(onlyonce.Store, onlyonce.Hold) error { return nil }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			store, _ := openSQLite(t)
			h := c.shown(t, store)
			shown, err := (&recordName{key: h.ID.Key}).find(ctx, store)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.change(store, h); err != nil {
				t.Fatal(err)
			}
			before, _ := store.Lookup(ctx, h.ID)
			rm := change{done: "deleted", decision: cli.Decision{Decision: onlyonce.Decision{Actor: "ada", Reason: "ticket 7"}}}
			err = rm.one(ctx, store, shown)
			after, gone := store.Lookup(ctx, h.ID)
			switch {
			case c.says == "" && (err != nil || gone == nil):
				t.Errorf("it was not deleted: %v", err)
			case c.says != "" && (err == nil || !strings.HasPrefix(err.Error(), c.says)):
				t.Errorf("it says %v, want %q", err, c.says)
			case c.says != "" && after.State != before.State:
				t.Errorf("it was %q and is %q", before.State, after.State)
			}
		})
	}
}

// openSQLite opens a store in a file of the test's own.
func openSQLite(t *testing.T) (*storeurl.Store, storeurl.URL) {
	t.Helper()
	u, err := storeurl.Parse("sqlite:" + filepath.Join(t.TempDir(), "a.db"))
	if err != nil {
		t.Fatal(err)
	}
	store, err := u.OpenMigrated(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store, u
}

// claim claims the one command of a test.
func claim(t *testing.T, s onlyonce.Store, lease time.Duration) onlyonce.Hold {
	t.Helper()
	id := onlyonce.ID{Tenant: "alice", Operation: "POST /items", Key: "k"}
	r, err := s.Claim(t.Context(), onlyonce.Claim{ID: id, Owner: "owner", SkipFingerprint: true, Lease: lease})
	if err != nil {
		t.Fatal(err)
	}
	return onlyonce.Hold{ID: id, Owner: r.Owner, Fence: r.Fence}
}

func lapsed(t *testing.T, s onlyonce.Store) onlyonce.Hold {
	h := claim(t, s, time.Millisecond)
	cmdtest.Until(t, "the lease has lapsed", func() bool {
		r, err := s.Lookup(t.Context(), h.ID)
		return err == nil && r.LeaseLeft <= 0
	})
	return h
}

func doubtful(t *testing.T, s onlyonce.Store) onlyonce.Hold {
	h := claim(t, s, time.Hour)
	if err := s.Settle(t.Context(), h, onlyonce.Settlement{State: onlyonce.StateUnknown}); err != nil {
		t.Fatal(err)
	}
	return h
}
