//go:build linux

// Package ledger sends commands through the library while processes and servers
// are killed, and compares the responses with the rows
// that the commands wrote.
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

// A Place names a store and its database, in which the commands write rows, too.
type Place struct {
	Store string // sqlite, postgres, pgxstore or mariadb
	DSN   string
}

// drivers has the driver of database/sql for each store.
var drivers = map[string]string{"sqlite": "sqlite", "postgres": "pgx", "pgxstore": "pgx", "mariadb": "mysql"}

// placeholder returns the placeholder of the nth parameter.
func (p Place) placeholder(n int) string {
	if drivers[p.Store] == "pgx" {
		return fmt.Sprint("$", n)
	}
	return "?"
}

// tables creates the tables in which commands write. In kept, a command has at most one row:
// the table stands for a downstream service that supports idempotency keys.
var tables = []string{
	"CREATE TABLE entries (command VARCHAR(64) NOT NULL, token VARCHAR(64) NOT NULL)",
	"CREATE INDEX entries_command ON entries (command)",
	"CREATE TABLE kept (command VARCHAR(64) NOT NULL PRIMARY KEY, token VARCHAR(64) NOT NULL)",
}

// A Database has a store, and the rows that commands write beside its records.
type Database struct {
	place Place
	db    *sql.DB
	Store interface {
		onlyonce.Store
		onlyonce.Resolver
	}
	newDoTx func(onlyonce.Config) doTx
	closers []func() error
}

// openTimeout limits how long opening a store may take, on a server that is killed
// repeatedly.
const openTimeout = 2 * time.Minute

// Open opens a store, and repeats that until its server responds.
func Open(p Place) (b *Database, err error) {
	for end := time.Now().Add(openTimeout); ; time.Sleep(20 * time.Millisecond) {
		if b, err = open(p); err == nil || time.Now().After(end) {
			return b, err
		}
	}
}

func open(p Place) (*Database, error) {
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	db, err := faults.Open(drivers[p.Store], p.DSN)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8)
	b := &Database{place: p, db: db, closers: []func() error{db.Close}}
	insert := fmt.Sprintf("INSERT INTO entries (command, token) VALUES (%s, %s)", p.placeholder(1), p.placeholder(2))
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

func (b *Database) openSQL(ctx context.Context, insert string) error {
	s, err := sqlstore.Open(ctx, b.db, sqlstore.Config{PurgeEvery: sqlstore.NeverPurge})
	if err != nil {
		return err
	}
	b.Store, b.closers = s, append(b.closers, s.Close)
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

func (b *Database) openPgx(ctx context.Context, insert string) error {
	cfg, err := pgxpool.ParseConfig(b.place.DSN)
	if err != nil {
		return err
	}
	cfg.MaxConns = 8
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	b.closers = append(b.closers, func() error { pool.Close(); return nil })
	s, err := pgxstore.Open(ctx, pool, pgxstore.Config{PurgeEvery: pgxstore.NeverPurge})
	if err != nil {
		return err
	}
	b.Store, b.closers = s, append(b.closers, s.Close)
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

// Close closes the store and its connections.
func (b *Database) Close() error {
	var err error
	for i := range b.closers {
		err = errors.Join(err, b.closers[len(b.closers)-1-i]())
	}
	return err
}

// idOf returns the ID of the command with a key.
func idOf(key string) onlyonce.ID { return onlyonce.ID{Tenant: "ledger", Operation: "pay", Key: key} }

func request(key string) onlyonce.Request {
	return onlyonce.Request{ID: idOf(key), Fingerprint: onlyonce.Fingerprint([]byte(key))}
}

// insertEntry inserts a row. Nothing prevents a second one for the same command.
func (b *Database) insertEntry(ctx context.Context, key, token string) error {
	_, err := b.db.ExecContext(ctx, fmt.Sprintf("INSERT INTO entries (command, token) VALUES (%s, %s)", b.place.placeholder(1), b.place.placeholder(2)), key, token)
	return err
}

// insertOnce inserts the only row of a command unless it exists, and returns its token.
func (b *Database) insertOnce(ctx context.Context, key, token string) (kept string, err error) {
	insert := fmt.Sprintf("INSERT INTO kept (command, token) VALUES (%s, %s) ON CONFLICT (command) DO NOTHING", b.place.placeholder(1), b.place.placeholder(2))
	if b.place.Store == "mariadb" {
		insert = "INSERT INTO kept (command, token) VALUES (?, ?) ON DUPLICATE KEY UPDATE command = command"
	}
	if _, err := b.db.ExecContext(ctx, insert, key, token); err != nil {
		return "", err
	}
	err = b.db.QueryRowContext(ctx, "SELECT token FROM kept WHERE command = "+b.place.placeholder(1), key).Scan(&kept)
	return kept, err
}

// Rows returns the tokens of the rows of each command.
func (b *Database) Rows(ctx context.Context) (map[string][]string, error) {
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

// CreateTables creates the tables of the store and of the commands.
func CreateTables(p Place) error {
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
