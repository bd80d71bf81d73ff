package integration

import (
	"crypto/rand"
	"database/sql"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/stores/pgxstore"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
	"github.com/onlyonce-go/onlyonce/stores/storetest"
)

// postgresServer is where tests make schemas of their own.
var postgresServer = sync.OnceValues(func() (string, error) {
	dsn := os.Getenv("ONLYONCE_POSTGRES")
	if dsn == "" {
		dsn = "postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable"
	}
	return dsn, reach("pgx", dsn)
})

// A postgresSchema is one in which a test has its tables.
type postgresSchema struct {
	dsn  string
	name string
}

// newPostgresSchema makes a schema, which is dropped at the end.
func newPostgresSchema(t testing.TB) postgresSchema {
	t.Helper()
	dsn, err := postgresServer()
	needs.Service(t, "PostgreSQL", err)
	s := postgresSchema{dsn: dsn, name: "onlyonce_" + strings.ToLower(rand.Text())}
	makeFor(t, "pgx", dsn, "SCHEMA "+s.name, " CASCADE")
	return s
}

// with is the DSN of the schema with more settings, such as
// "synchronous_commit=off".
func (s postgresSchema) with(t testing.TB, settings ...string) string {
	t.Helper()
	u, err := url.Parse(s.dsn)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("search_path", s.name)
	for _, setting := range settings {
		name, value, _ := strings.Cut(setting, "=")
		q.Set(name, value)
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// pool opens a pool, which is closed at the end.
func (s postgresSchema) pool(t testing.TB, settings ...string) *sql.DB {
	t.Helper()
	return openPool(t, "pgx", s.with(t, settings...))
}

// open opens a store in the schema, with its own pool.
func (s postgresSchema) open(t testing.TB, settings ...string) (*sqlstore.Store, *sql.DB) {
	t.Helper()
	return openMigrated(t, s.pool(t, settings...))
}

// openPgxstore opens a pgxstore on the migrated database with a DSN.
func openPgxstore(t testing.TB, dsn string) *pgxstore.Store {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return openPgxstoreWith(t, cfg)
}

func openPgxstoreWith(t testing.TB, cfg *pgxpool.Config) *pgxstore.Store {
	t.Helper()
	return openPgxstoreOn(t, openPgxpool(t, cfg))
}

func openPgxpool(t testing.TB, cfg *pgxpool.Config) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func openPgxstoreOn(t testing.TB, pool *pgxpool.Pool) *pgxstore.Store {
	t.Helper()
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

// tx is a store in the schema, which then has a table of the caller's.
func (postgresSchema) tx(t *testing.T, store *sqlstore.Store, db *sql.DB) storetest.Tx[*sql.Tx] {
	t.Helper()
	makeOwn(t, db, "bytea")
	return ownRows(store, db, "$1")
}

// postgresSettings are those of a user's pool: none of them must matter.
var postgresSettings = map[string][]string{
	"as it is":        nil,
	"with everything": {"default_transaction_isolation=serializable", "synchronous_commit=off", "TimeZone=Pacific/Chatham", "default_query_exec_mode=exec"},
}

func TestPostgreSQL_PostgresKeepsTheRules(t *testing.T) {
	t.Parallel()
	keepsTheRules(t, postgresSettings, func(t *testing.T) recordPlace { return newPostgresSchema(t) })
}
