//go:build linux

// Package ledger sends commands through the library while processes and servers
// are killed, and compares the responses with what was done.
package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "modernc.org/sqlite" // the driver

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
	"github.com/onlyonce-go/onlyonce/stores/pgxstore"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// A Place is where a store keeps its records and the commands write theirs.
type Place struct {
	Store string // sqlite, postgres, pgxstore or mariadb
	DSN   string
}

// drivers of the stores, for database/sql.
var drivers = map[string]string{"sqlite": "sqlite", "postgres": "pgx", "pgxstore": "pgx", "mariadb": "mysql"}

// mark returns the nth parameter's.
func (p Place) mark(n int) string {
	if drivers[p.Store] == "pgx" {
		return fmt.Sprint("$", n)
	}
	return "?"
}

// tables are those of the commands. In kept, a command has one row at most: it
// stands for a downstream service that knows idempotency keys.
var tables = []string{
	"CREATE TABLE entries (command VARCHAR(64) NOT NULL, token VARCHAR(64) NOT NULL)",
	"CREATE INDEX entries_command ON entries (command)",
	"CREATE TABLE kept (command VARCHAR(64) NOT NULL PRIMARY KEY, token VARCHAR(64) NOT NULL)",
}

// Books are a store, and the rows that commands write beside its records.
type Books struct {
	place Place
	db    *sql.DB
	Store interface {
		onlyonce.Store
		onlyonce.Resolver
	}
	newDoTx func(onlyonce.Config) doTx
	shut    []func() error
}

// patience is how long it may take to open a store on a server that is killed
// now and then.
const patience = 2 * time.Minute

// Open opens a store, until its server responds.
func Open(p Place) (b *Books, err error) {
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if b, err = open(p); err == nil || time.Now().After(end) {
			return b, err
		}
	}
}

func open(p Place) (*Books, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	db, err := faults.Open(drivers[p.Store], p.DSN)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8)
	b := &Books{place: p, db: db, shut: []func() error{db.Close}}
	insert := fmt.Sprintf("INSERT INTO entries (command, token) VALUES (%s, %s)", p.mark(1), p.mark(2))
	if p.Store == "pgxstore" {
		err = b.openPgx(ctx, insert)
	} else {
		err = b.openSQL(ctx, insert)
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// A doTx runs a command that writes its row in a transaction.
type doTx func(ctx context.Context, key, token string) (onlyonce.Answer[string], error)

func (b *Books) openSQL(ctx context.Context, insert string) error {
	s, err := sqlstore.Open(ctx, b.db, sqlstore.Config{PurgeEvery: sqlstore.NeverPurge})
	if err != nil {
		return err
	}
	b.Store, b.shut = s, append(b.shut, s.Close)
	b.newDoTx = func(cfg onlyonce.Config) doTx {
		guard := onlyonce.NewTx(s, cfg)
		return func(ctx context.Context, key, token string) (onlyonce.Answer[string], error) {
			return onlyonce.DoTx(ctx, guard, request(key), func(ctx context.Context, tx *sql.Tx) (string, error) {
				_, err := tx.ExecContext(ctx, insert, key, token)
				return token, err
			})
		}
	}
	return nil
}

func (b *Books) openPgx(ctx context.Context, insert string) error {
	cfg, err := pgxpool.ParseConfig(b.place.DSN)
	if err != nil {
		return err
	}
	cfg.MaxConns = 8
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	b.shut = append(b.shut, func() error { pool.Close(); return nil })
	s, err := pgxstore.Open(ctx, pool, pgxstore.Config{PurgeEvery: pgxstore.NeverPurge})
	if err != nil {
		return err
	}
	b.Store, b.shut = s, append(b.shut, s.Close)
	b.newDoTx = func(cfg onlyonce.Config) doTx {
		guard := onlyonce.NewTx(s, cfg)
		return func(ctx context.Context, key, token string) (onlyonce.Answer[string], error) {
			return onlyonce.DoTx(ctx, guard, request(key), func(ctx context.Context, tx pgx.Tx) (string, error) {
				_, err := tx.Exec(ctx, insert, key, token)
				return token, err
			})
		}
	}
	return nil
}

// Close closes what Open has opened, the last first.
func (b *Books) Close() error {
	var err error
	for i := range b.shut {
		err = errors.Join(err, b.shut[len(b.shut)-1-i]())
	}
	return err
}

// idOf is the command of a key, and request what is asked for.
func idOf(key string) onlyonce.ID { return onlyonce.ID{Tenant: "ledger", Operation: "pay", Key: key} }

func request(key string) onlyonce.Request {
	return onlyonce.Request{ID: idOf(key), Fingerprint: onlyonce.Fingerprint([]byte(key))}
}

// enter writes a row that nothing protects.
func (b *Books) enter(ctx context.Context, key, token string) error {
	_, err := b.db.ExecContext(ctx, fmt.Sprintf("INSERT INTO entries (command, token) VALUES (%s, %s)", b.place.mark(1), b.place.mark(2)), key, token)
	return err
}

// keep writes the command's one row, unless it is there, and returns its token.
func (b *Books) keep(ctx context.Context, key, token string) (kept string, err error) {
	insert := fmt.Sprintf("INSERT INTO kept (command, token) VALUES (%s, %s) ON CONFLICT (command) DO NOTHING", b.place.mark(1), b.place.mark(2))
	if b.place.Store == "mariadb" {
		insert = "INSERT INTO kept (command, token) VALUES (?, ?) ON DUPLICATE KEY UPDATE command = command"
	}
	if _, err := b.db.ExecContext(ctx, insert, key, token); err != nil {
		return "", err
	}
	err = b.db.QueryRowContext(ctx, "SELECT token FROM kept WHERE command = "+b.place.mark(1), key).Scan(&kept)
	return kept, err
}

// Rows returns the tokens of every command's rows.
func (b *Books) Rows(ctx context.Context) (map[string][]string, error) {
	all := make(map[string][]string)
	rows, err := b.db.QueryContext(ctx, "SELECT command, token FROM entries UNION ALL SELECT command, token FROM kept")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var command, token string
		if err := rows.Scan(&command, &token); err != nil {
			return nil, err
		}
		all[command] = append(all[command], token)
	}
	return all, rows.Err()
}

// Make makes the tables.
func Make(p Place) error {
	db, err := faults.Open(drivers[p.Store], p.DSN)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := sqlstore.Migrate(context.Background(), db); err != nil {
		return err
	}
	for _, text := range tables {
		if _, err := db.Exec(text); err != nil {
			return err
		}
	}
	return nil
}
