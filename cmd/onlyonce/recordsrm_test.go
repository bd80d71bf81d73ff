package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/storeurl"
)

func TestARecordThatChangedSinceItWasShownIsNotDeleted(t *testing.T) {
	ctx := t.Context()
	completed := onlyonce.Settlement{State: onlyonce.StateCompleted, Keep: time.Hour}
	unknown := onlyonce.Settlement{State: onlyonce.StateUnknown}
	for name, c := range map[string]struct {
		shown  func(*testing.T, seeder) onlyonce.Hold
		change func(s seeder, h onlyonce.Hold) error
		says   string
	}{
		"the attempt that was taken for dead ended late": {
			lapsed,
			func(s seeder, h onlyonce.Hold) error { return s.store.Settle(ctx, h, completed) },
			"nothing was deleted: the record was processing (lapsed) when it was shown, and is completed now",
		},
		"it renewed its lease": {
			lapsed,
			func(s seeder, h onlyonce.Hold) error { return s.store.Renew(ctx, h, time.Hour, nil) },
			"nothing was deleted: an attempt holds the command",
		},
		"another attempt took over and ended": {
			lapsed,
			func(s seeder, h onlyonce.Hold) error {
				r, err := s.store.Claim(ctx, onlyonce.Claim{ID: h.ID, Owner: "other", SkipFingerprint: true, Lease: time.Hour, TakeUnknown: true})
				check(err)
				return s.store.Settle(ctx, onlyonce.Hold{ID: h.ID, Owner: r.Owner, Fence: r.Fence}, unknown)
			},
			"nothing was deleted: another attempt began",
		},
		"someone decided about it": {
			doubtful,
			func(s seeder, h onlyonce.Hold) error {
				return s.store.(resolver).Resolve(ctx, h.ID, h.Fence, completed)
			},
			"nothing was deleted: another attempt began, or someone decided about the record",
		},
		"someone decided as it was": {
			doubtful,
			func(s seeder, h onlyonce.Hold) error {
				return s.store.(resolver).Resolve(ctx, h.ID, h.Fence, unknown)
			},
			"nothing was deleted: another attempt began, or someone decided about the record",
		},
		"it is gone": {
			doubtful,
			func(s seeder, h onlyonce.Hold) error {
				return s.store.(resolver).Resolve(ctx, h.ID, h.Fence, onlyonce.Settlement{})
			},
			"nothing was deleted: the record is gone",
		},
		"nothing changed": {lapsed, func(seeder, onlyonce.Hold) error { return nil }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			u, err := storeurl.Parse("sqlite:" + filepath.Join(t.TempDir(), "a.db"))
			if err != nil {
				t.Fatal(err)
			}
			store, err := u.OpenMigrated(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			s := seeder{ctx, store}
			h := c.shown(t, s)
			shown, err := (&recordName{key: h.ID.Key}).find(ctx, store)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.change(s, h); err != nil {
				t.Fatal(err)
			}
			before, _ := store.Lookup(ctx, h.ID)
			err = remove(ctx, store, shown)
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

func lapsed(t *testing.T, s seeder) onlyonce.Hold {
	h := s.claim("k", time.Millisecond)
	cmdtest.Until(t, "the lease has lapsed", func() bool {
		r, err := s.store.Lookup(s.ctx, h.ID)
		return err == nil && r.LeaseLeft <= 0
	})
	return h
}

func doubtful(_ *testing.T, s seeder) onlyonce.Hold {
	h := s.claim("k", time.Hour)
	check(s.store.Settle(s.ctx, h, onlyonce.Settlement{State: onlyonce.StateUnknown}))
	return h
}
