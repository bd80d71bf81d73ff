package integration

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
	"github.com/onlyonce-go/onlyonce/stores/pgxstore"
)

// A keeper is one way to keep records on a server that gets killed.
type keeper struct {
	name   string
	server *faults.Kind
	open   opener
}

// An opener opens a store on a database.
type opener func(t *testing.T, d ownDatabase, n *notes) payer

var keepers = []keeper{
	{"sqlstore on PostgreSQL", faults.PostgreSQL, openSQLPayer("INSERT INTO paid (command, token) VALUES ($1, $2)")},
	{"pgxstore", faults.PostgreSQL, openPgxPayer},
	{"sqlstore on MariaDB", faults.MariaDB, openSQLPayer("INSERT INTO paid (command, token) VALUES (?, ?)")},
}

// A payer writes a row of the caller's, with a token that is its response, in
// different ways.
type payer struct {
	records onlyonce.Lister
	ways    map[string]way
}

// A way asks for a command, and returns its response.
type way func(ctx context.Context, key, token string) (answer string, err error)

// The ways.
const (
	byDo    = "Do"    // the row is written by itself, under a lease
	byDoTx  = "DoTx"  // the row and the response are committed together
	byPlain = "plain" // nobody knows whether the row is there already
)

// notes hold the events that the clients and the functions have seen.
type notes struct {
	sync.Mutex
	answers    map[string][]string // the responses to each key
	ran        map[string][]string // tokens of the functions under a lease that came to their end
	unrecorded map[string][]string // outcomes that say that a response was given and could not be kept
}

func newNotes() *notes {
	return &notes{answers: make(map[string][]string), ran: make(map[string][]string), unrecorded: make(map[string][]string)}
}

func (n *notes) add(to map[string][]string, key string, what ...string) {
	n.Lock()
	defer n.Unlock()
	to[key] = append(to[key], what...)
}

func (n *notes) observe(_ context.Context, e onlyonce.Event) {
	if e.Outcome == onlyonce.OutcomeUnrecorded || e.Outcome == onlyonce.OutcomeLost {
		n.add(n.unrecorded, e.Record.ID.Key, string(e.Outcome))
	}
}

// killLease is longer than a server is away, so that attempts can settle.
const killLease = 6 * time.Second

// payerOn pays through a store.
func payerOn[TX any, S interface {
	onlyonce.TxStore[TX]
	onlyonce.Lister
}](store S, n *notes, insert func(ctx context.Context, key, token string) error, insertTx func(ctx context.Context, tx TX, key, token string) error) payer {
	guard := onlyonce.NewTx[TX](store, onlyonce.Config{Lease: killLease, Observer: n.observe})
	do := func(ctx context.Context, key, token string) (string, error) {
		a, err := onlyonce.Do(ctx, guard.Guard, onlyonce.Request{ID: onlyonce.ID{Key: key}, SkipFingerprint: true}, func(ctx context.Context) (string, error) {
			if err := insert(ctx, key, token); err != nil {
				return "", err
			}
			n.add(n.ran, key, token)
			return token, nil
		})
		return a.Value, err
	}
	doTx := func(ctx context.Context, key, token string) (string, error) {
		a, err := onlyonce.DoTx(ctx, guard, onlyonce.Request{ID: onlyonce.ID{Key: key}, SkipFingerprint: true}, func(ctx context.Context, tx TX) (string, error) {
			return token, insertTx(ctx, tx, key, token)
		})
		return a.Value, err
	}
	plain := func(ctx context.Context, key, token string) (string, error) { return token, insert(ctx, key, token) }
	return payer{store, map[string]way{byDo: do, byDoTx: doTx, byPlain: plain}}
}

func openSQLPayer(insert string) opener {
	return func(t *testing.T, d ownDatabase, n *notes) payer {
		t.Helper()
		db := d.migrated(t)
		return payerOn(openOn(t, db), n,
			func(ctx context.Context, key, token string) error {
				_, err := db.ExecContext(ctx, insert, key, token)
				return err
			},
			func(ctx context.Context, tx *sql.Tx, key, token string) error {
				_, err := tx.ExecContext(ctx, insert, key, token)
				return err
			})
	}
}

func openPgxPayer(t *testing.T, d ownDatabase, n *notes) payer {
	t.Helper()
	const insert = "INSERT INTO paid (command, token) VALUES ($1, $2)"
	store, pool := openPgx(t, d)
	return payerOn(store, n,
		func(ctx context.Context, key, token string) error {
			_, err := pool.Exec(ctx, insert, key, token)
			return err
		},
		func(ctx context.Context, tx pgx.Tx, key, token string) error {
			_, err := tx.Exec(ctx, insert, key, token)
			return err
		})
}

func openPgx(t *testing.T, d ownDatabase) (*pgxstore.Store, *pgxpool.Pool) {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(d.dsn)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 16
	if d.noPing {
		cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if err := pgxstore.Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	store, err := pgxstore.Open(t.Context(), pool, pgxstore.Config{PurgeEvery: pgxstore.NeverPurge})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store, pool
}
