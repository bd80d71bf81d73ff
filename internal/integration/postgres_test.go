package integration

import (
	"context"
	"crypto/rand"
	"database/sql"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

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

// reach returns an error if a server does not answer.
func reach(driver, dsn string) error {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), answerLimit)
	defer cancel()
	return db.PingContext(ctx)
}

// makeFor makes something on a server, which is dropped at the end of the test.
func makeFor(t testing.TB, driver, dsn, what, dropping string) {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	db.SetMaxIdleConns(0) // a test's own connections are enough
	if _, err := db.Exec("CREATE " + what); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := db.Exec("DROP " + what + dropping); err != nil {
			t.Error(err)
		}
	})
}

// service skips a test whose server is not there, unless all are required.
func service(t testing.TB, name string, err error) {
	t.Helper()
	switch {
	case err == nil:
	case os.Getenv("ONLYONCE_REQUIRE_SERVICES") != "":
		t.Fatalf("%s: %v", name, err)
	default:
		t.Skipf("%s is not there: %v", name, err)
	}
}

// A postgresSchema is one in which a test has its tables.
type postgresSchema struct {
	dsn  string
	name string
}

// newPostgresSchema makes a schema, which is dropped at the end.
func newPostgresSchema(t testing.TB) postgresSchema {
	t.Helper()
	dsn, err := postgresServer()
	service(t, "PostgreSQL", err)
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
	db, err := sql.Open("pgx", s.with(t, settings...))
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	t.Cleanup(func() { db.Close() })
	return db
}

// open opens a store in the schema, with its own pool.
func (s postgresSchema) open(t testing.TB, settings ...string) (*sqlstore.Store, *sql.DB) {
	t.Helper()
	db := s.pool(t, settings...)
	if err := sqlstore.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	return openOn(t, db), db
}

func openOn(t testing.TB, db *sql.DB) *sqlstore.Store {
	t.Helper()
	s, err := sqlstore.Open(t.Context(), db, sqlstore.Config{})
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
	if _, err := db.Exec("CREATE TABLE IF NOT EXISTS own (name bytea NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	return postgresTx(store, db)
}

func postgresTx(store *sqlstore.Store, db *sql.DB) storetest.Tx[*sql.Tx] {
	return storetest.Tx[*sql.Tx]{
		Store: store,
		In:    store,
		Insert: func(ctx context.Context, tx *sql.Tx, row string) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO own (name) VALUES ($1)", []byte(row))
			return err
		},
		Count: func(ctx context.Context, row string) (n int, err error) {
			err = db.QueryRowContext(ctx, "SELECT count(*) FROM own WHERE name = $1", []byte(row)).Scan(&n)
			return n, err
		},
		Rollback: (*sql.Tx).Rollback,
		Commit:   (*sql.Tx).Commit,
	}
}

// postgresSettings are those of a user's pool: none of them must matter.
var postgresSettings = map[string][]string{
	"as it is":        nil,
	"with everything": {"default_transaction_isolation=serializable", "synchronous_commit=off", "TimeZone=Pacific/Chatham", "default_query_exec_mode=exec"},
}

func TestPostgresKeepsTheRules(t *testing.T) {
	keepsTheRules(t, postgresSettings, func(t *testing.T) recordPlace { return newPostgresSchema(t) })
}
