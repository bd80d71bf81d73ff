package integration

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
	"github.com/onlyonce-go/onlyonce/stores/pgxstore"
)

// cancels makes a connection ask the server to cancel a statement whose context has ended,
// and wait for its response, as other drivers do by default.
func cancels(c *pgconn.PgConn) ctxwatch.Handler {
	return &pgconn.CancelRequestContextWatcherHandler{Conn: c, DeadlineDelay: time.Minute}
}

// PostgreSQL confirms a commit whose wait for the standbys was canceled.
func TestPostgreSQL_ACommitThatItsDriverCanceledIsNotConfirmed(t *testing.T) {
	t.Parallel()
	server := newOwnServer(t, faults.PostgreSQL)
	d := server.newDatabase(t)
	d.migrated(t)
	gate := &standbyGate{t, server.admin}
	cfg, err := pgxpool.ParseConfig(d.dsn)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 16
	cfg.ConnConfig.BuildContextWatcherHandler = cancels
	openSQL := func() onlyonce.TxStore[*sql.Tx] {
		db := stdlib.OpenDB(*cfg.ConnConfig)
		t.Cleanup(func() { db.Close() })
		return openOn(t, db)
	}
	openPgx := func() onlyonce.TxStore[pgx.Tx] {
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		s, err := pgxstore.Open(t.Context(), pool, pgxstore.Config{PurgeEvery: pgxstore.NeverPurge})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	calls := make(map[string]func(context.Context) error)
	for name, s := range map[string]onlyonce.Store{"sqlstore": openSQL(), "pgxstore": openPgx()} {
		held := func(key string) onlyonce.Hold {
			c := serverClaim(key)
			r, err := s.Claim(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			return onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}
		}
		for n := range many / 4 { // so that some are written together
			h := held(fmt.Sprint(name, " ", n))
			calls[fmt.Sprint(name, ": Settle ", n)] = func(ctx context.Context) error { return s.Settle(ctx, h, done("made")) }
		}
		calls[name+": Claim"] = func(ctx context.Context) error {
			_, err := s.Claim(ctx, serverClaim(name+", new"))
			return err
		}
		if err := s.Settle(t.Context(), held(name+", ended"), done("made")); err != nil {
			t.Fatal(err)
		}
	}
	runTx(calls, "sqlstore", openSQL())
	runTx(calls, "pgxstore", openPgx())
	gate.shut()
	t.Cleanup(gate.open)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // longer than a store waits for a group
	defer cancel()
	results := make(map[string]chan error)
	for name, call := range calls {
		result := make(chan error, 1)
		results[name] = result
		go func() { result <- call(ctx) }()
	}
	for name, result := range results {
		if err := <-result; err == nil {
			t.Errorf("%s: no error, although no standby has what was committed", name)
		}
	}
}

// runTx adds the calls of a process that has seen none of the records.
func runTx[TX any](calls map[string]func(context.Context) error, name string, s onlyonce.TxStore[TX]) {
	calls[name+": Lookup"] = func(ctx context.Context) error {
		_, err := s.Lookup(ctx, serverClaim(name+", ended").ID)
		return err
	}
	calls[name+": RunTx"] = func(ctx context.Context) error {
		_, err := s.RunTx(ctx, serverClaim(name+", run"), func(context.Context, TX, onlyonce.Record) (onlyonce.Settlement, error) {
			return done("made"), nil
		})
		return err
	}
}
