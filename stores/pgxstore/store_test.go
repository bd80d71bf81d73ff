package pgxstore_test

import (
	"context"
	"crypto/rand"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
	"github.com/onlyonce-go/onlyonce/stores/pgxstore"
	"github.com/onlyonce-go/onlyonce/stores/storetest"
)

// server is where PostgreSQL listens: ONLYONCE_POSTGRES_URL, or the local one.
func server() string {
	if url := os.Getenv("ONLYONCE_POSTGRES_URL"); url != "" {
		return url
	}
	return "postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable"
}

// newPool returns a pool whose tables are in a schema of its own.
func newPool(t testing.TB, settings ...string) *pgxpool.Pool {
	t.Helper()
	return openPool(t, append(settings, "search_path="+newSchema(t))...)
}

func newSchema(t testing.TB) string {
	t.Helper()
	ctx := context.Background()
	admin, err := pgx.Connect(ctx, server())
	needs.Service(t, "PostgreSQL", err)
	schema := "onlyonce_" + strings.ToLower(rand.Text())
	if _, err := admin.Exec(ctx, "CREATE SCHEMA "+schema); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := admin.Exec(ctx, "DROP SCHEMA "+schema+" CASCADE"); err != nil {
			t.Error(err)
		}
		admin.Close(ctx)
	})
	return schema
}

// openPool opens a pool with settings of the connections, and with so many as
// "pool" says.
func openPool(t testing.TB, settings ...string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(server())
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 8
	cfg.ConnConfig.RuntimeParams["application_name"] = "onlyonce test " + rand.Text()
	for _, s := range settings {
		name, value, _ := strings.Cut(s, "=")
		if name == "pool" {
			n, _ := strconv.Atoi(value)
			cfg.MaxConns = int32(n)
			continue
		}
		cfg.ConnConfig.RuntimeParams[name] = value
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func open(t testing.TB, pool *pgxpool.Pool) *pgxstore.Store {
	t.Helper()
	if err := pgxstore.Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	s, err := pgxstore.Open(t.Context(), pool, pgxstore.Config{PurgeEvery: pgxstore.NeverPurge})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// levels are the isolation levels that a pool may have.
var levels = []string{"read committed", "repeatable read", "serializable"}

func TestStore_PostgreSQLKeepsTheRulesOfAStore(t *testing.T) {
	pool := newPool(t)
	storetest.Run(t, func(t *testing.T) onlyonce.Store { return empty(t, pool) })
}

// empty returns a store without records on tables that others used before.
func empty(t testing.TB, pool *pgxpool.Pool) *pgxstore.Store {
	t.Helper()
	s := open(t, pool)
	if _, err := pool.Exec(t.Context(), "TRUNCATE onlyonce_records; UPDATE onlyonce_fence SET floor = 0"); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore_PostgreSQLKeepsTheRulesOfATxStore(t *testing.T) {
	for _, level := range levels {
		t.Run(level, func(t *testing.T) {
			pool := newPool(t, "default_transaction_isolation="+level)
			if _, err := pool.Exec(t.Context(), "CREATE TABLE own (name bytea NOT NULL); CREATE INDEX own_name ON own (name)"); err != nil {
				t.Fatal(err)
			}
			storetest.RunTx(t, func(t *testing.T) storetest.Tx[pgx.Tx] {
				s := empty(t, pool)
				if _, err := pool.Exec(t.Context(), "TRUNCATE own"); err != nil {
					t.Fatal(err)
				}
				return ownRows(s, pool)
			})
		})
	}
}

// ownRows is a store beside the caller's table.
func ownRows(s *pgxstore.Store, pool *pgxpool.Pool) storetest.Tx[pgx.Tx] {
	return storetest.Tx[pgx.Tx]{
		Store: s,
		Insert: func(ctx context.Context, tx pgx.Tx, row string) error {
			_, err := tx.Exec(ctx, "INSERT INTO own (name) VALUES ($1)", []byte(row))
			return err
		},
		Count: func(ctx context.Context, row string) (n int, err error) {
			err = pool.QueryRow(ctx, "SELECT count(*) FROM own WHERE name = $1", []byte(row)).Scan(&n)
			return n, err
		},
	}
}

func TestStore_PostgreSQLGoesByTheServersClock(t *testing.T) {
	storetest.RunClock(t, func(t *testing.T) func(t *testing.T) onlyonce.Store {
		schema := newSchema(t)
		return func(t *testing.T) onlyonce.Store { return open(t, openPool(t, "search_path="+schema)) }
	})
}

func TestStore_AServerThatOnlySpeaksLikePostgreSQLIsRejected(t *testing.T) {
	schema := newSchema(t)
	pool := openPool(t, "search_path="+schema+",pg_catalog")
	if _, err := pool.Exec(t.Context(), "CREATE FUNCTION "+schema+".version() RETURNS text LANGUAGE sql AS $$ SELECT 'CockroachDB CCL v24.1.0' $$"); err != nil {
		t.Fatal(err)
	}
	if err := pgxstore.Migrate(t.Context(), pool); err == nil || !strings.Contains(err.Error(), "this database is CockroachDB") {
		t.Errorf("migrate: %v", err)
	}
	s, err := pgxstore.Open(t.Context(), pool, pgxstore.Config{PurgeEvery: pgxstore.NeverPurge})
	if err == nil || !strings.Contains(err.Error(), "this database is CockroachDB") {
		t.Errorf("open: %v", err)
	}
	if s != nil {
		s.Close()
	}
}

func TestOpen_ANilPoolPanicsAndSaysWhatToPass(t *testing.T) {
	hazard.CheckPanics(t, "pgxstore: there is no pool: pass what pgxpool.New returned",
		func() { _, _ = pgxstore.Open(t.Context(), nil, pgxstore.Config{}) },
		func() { _ = pgxstore.Migrate(t.Context(), nil) })
}
