package integration

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

func TestClose_AClosedStoreSaysSoOnEveryDatabase(t *testing.T) {
	closes := func(t *testing.T, s *sqlstore.Store, db *sql.DB) {
		r, err := s.Claim(t.Context(), serverClaim("k"))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		h := onlyonce.Hold{ID: r.ID, Owner: r.Owner, Fence: r.Fence}
		calls := map[string]func(context.Context) error{
			"Resolve":  func(ctx context.Context) error { return s.Resolve(ctx, r, done("made")) },
			"Diagnose": func(ctx context.Context) error { _, err := s.Diagnose(ctx); return err },
			"Purge":    func(ctx context.Context) error { _, err := s.Purge(ctx, 1); return err },
			"Unresolved": func(ctx context.Context) error {
				_, _, err := s.Unresolved(ctx)
				return err
			},
			"List": func(ctx context.Context) (err error) {
				for _, err = range s.List(ctx, onlyonce.Filter{}) {
				}
				return err
			},
			"RunTx": func(ctx context.Context) error {
				_, err := s.RunTx(ctx, serverClaim("other"), func(context.Context, *sql.Tx, onlyonce.Record) (onlyonce.Settlement, error) {
					return done("made"), nil
				})
				return err
			},
			"SettleTx": func(ctx context.Context) error {
				return s.SettleTx(ctx, h, func(context.Context, *sql.Tx) (onlyonce.Settlement, error) { return done("made"), nil })
			},
			"Outbox.Append": func(ctx context.Context) error { return s.Outbox().Append(ctx, tx, outbox.Message{Topic: "t"}) },
			"Outbox.Lease":  func(ctx context.Context) error { _, err := s.Outbox().Lease(ctx, "me", time.Minute, 1); return err },
			"Outbox.Parked": func(ctx context.Context) error { _, err := s.Outbox().Parked(ctx, 0, 1); return err },
		}
		for where, s := range map[string]onlyonce.Store{"": s, "WithTx.": s.WithTx(tx)} {
			calls[where+"Claim"] = func(ctx context.Context) error { _, err := s.Claim(ctx, serverClaim("another")); return err }
			calls[where+"Lookup"] = func(ctx context.Context) error { _, err := s.Lookup(ctx, r.ID); return err }
			calls[where+"Renew"] = func(ctx context.Context) error { return s.Renew(ctx, h, time.Minute, nil) }
			calls[where+"Settle"] = func(ctx context.Context) error { return s.Settle(ctx, h, done("made")) }
		}
		for name, call := range calls {
			if err := call(t.Context()); err == nil || !strings.Contains(err.Error(), "the store is closed") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	t.Run("SQLite", func(t *testing.T) {
		s, db := openMigrated(t, openPool(t, "sqlite", "file:"+t.TempDir()+"/test.db"))
		closes(t, s, db)
	})
	onServers(t, closes)
}
