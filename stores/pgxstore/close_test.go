package pgxstore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/outbox"
)

func TestClose_AClosedStoreSaysSo(t *testing.T) {
	pool := newPool(t)
	s := open(t, pool)
	r := mustClaim(t, s, claimOf("k"))
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	calls := map[string]func(context.Context) error{
		"Resolve":    func(ctx context.Context) error { return s.Resolve(ctx, r, completed) },
		"Diagnose":   func(ctx context.Context) error { _, err := s.Diagnose(ctx); return err },
		"Purge":      func(ctx context.Context) error { _, err := s.Purge(ctx, 1); return err },
		"Unresolved": func(ctx context.Context) error { _, _, err := s.Unresolved(ctx); return err },
		"Wait":       func(ctx context.Context) error { return s.Wait(ctx, r.ID) },
		"List": func(ctx context.Context) (err error) {
			for _, err = range s.List(ctx, onlyonce.Filter{}) {
			}
			return err
		},
		"RunTx": func(ctx context.Context) error {
			_, err := s.RunTx(ctx, claimOf("other"), func(context.Context, pgx.Tx, onlyonce.Record) (onlyonce.Settlement, error) {
				t.Error("a function ran")
				return completed, nil
			})
			return err
		},
		"SettleTx": func(ctx context.Context) error {
			return s.SettleTx(ctx, holdOf(r), func(context.Context, pgx.Tx) (onlyonce.Settlement, error) { return completed, nil })
		},
		"Outbox.Append": func(ctx context.Context) error { return s.Outbox().Append(ctx, tx, outbox.Message{Topic: "t"}) },
		"Outbox.Lease":  func(ctx context.Context) error { _, err := s.Outbox().Lease(ctx, "me", time.Minute, 1); return err },
		"Outbox.Parked": func(ctx context.Context) error { _, err := s.Outbox().Parked(ctx, 0, 1); return err },
		"Outbox.Wait":   func(ctx context.Context) error { return s.Outbox().Wait(ctx) },
	}
	for where, s := range map[string]onlyonce.Store{"": s, "WithTx.": s.WithTx(tx)} {
		calls[where+"Claim"] = func(ctx context.Context) error { _, err := s.Claim(ctx, claimOf("another")); return err }
		calls[where+"Lookup"] = func(ctx context.Context) error { _, err := s.Lookup(ctx, r.ID); return err }
		calls[where+"Renew"] = func(ctx context.Context) error { return s.Renew(ctx, holdOf(r), time.Minute, nil) }
		calls[where+"Settle"] = func(ctx context.Context) error { return s.Settle(ctx, holdOf(r), completed) }
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // for a call that would wait
	defer cancel()
	for name, call := range calls {
		if err := call(ctx); err == nil || !strings.HasPrefix(err.Error(), "pgxstore: ") || !strings.Contains(err.Error(), "the store is closed") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
