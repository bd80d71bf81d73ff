package integration

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
	"github.com/onlyonce-go/onlyonce/stores/pgxstore"
)

// A standby that lags has no trace of a transaction that was committed, and none has the lock
// of one that has not ended.
func TestPostgreSQL_AStandbyIsNotBelievedThatATransactionWasNotCommitted(t *testing.T) {
	primary := newOwnServer(t, faults.PostgreSQL)
	d := primary.newDatabase(t)
	d.migrated(t)
	standby, err := faults.NewStandby(primary.Server, primary.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standby.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := standby.Admin.Exec("SELECT pg_wal_replay_pause()"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the standby lags", func() bool {
		var state string
		if err := standby.Admin.QueryRow("SELECT pg_get_wal_replay_pause_state()").Scan(&state); err != nil {
			t.Fatal(err)
		}
		return state == "paused"
	})
	c := newBalancer(t, primary)
	dsn := strings.Replace(d.dsn, primary.Address(), c.Addr().String(), 1) + "&default_query_exec_mode=exec"
	pool := openPool(t, "pgx", dsn)
	pool.SetMaxIdleConns(-1) // each step opens a connection
	s := openOn(t, pool)
	notBelieved(t, c, "sqlstore, of the end of a transaction", s, standby.Address())
	notBelieved(t, c, "sqlstore, of the record", s, primary.Address(), standby.Address())
	runsNothing(t, c, "sqlstore", s, standby.Address())

	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	cfg.AfterRelease = func(*pgx.Conn) bool { return false }
	pgxPool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pgxPool.Close)
	p, err := pgxstore.Open(t.Context(), pgxPool, pgxstore.Config{PurgeEvery: pgxstore.NeverPurge})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	notBelieved(t, c, "pgxstore", p, standby.Address())
	runsNothing(t, c, "pgxstore", p, standby.Address())
}
