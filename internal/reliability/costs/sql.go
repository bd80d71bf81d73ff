//go:build linux

package costs

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	_ "modernc.org/sqlite" // the driver

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// database is the name of the database with the records.
const database = "costs"

// connections is the maximum number of connections of a store.
const connections = 16

// NewMemory returns a store in this process.
func NewMemory() (*System, error) {
	s := memstore.New(memstore.Config{})
	return &System{
		Name: "memory",
		Open: func(context.Context, *Meter) (onlyonce.Store, func(), error) {
			return s, func() {}, nil
		},
		Close: func() error { return nil },
	}, nil
}

// newServer starts a server of a kind and sets up its database.
func newServer(name string, kind *faults.Kind, open func(ctx context.Context, dsn string) (onlyonce.Store, func(), error), written func(ctx context.Context, db *sql.DB) (Written, error)) (*System, error) {
	shared, err := os.MkdirTemp("", "onlyonce")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(shared, 0o755); err != nil { // another user runs the server
		return nil, errors.Join(err, os.RemoveAll(shared))
	}
	server, err := faults.New(kind, shared)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(shared))
	}
	var db *sql.DB
	s := &System{Name: name, Close: func() error {
		if db != nil {
			_ = db.Close() // before its server
		}
		return errors.Join(server.Close(), os.RemoveAll(shared))
	}}
	if _, err := server.Admin.Exec("CREATE DATABASE " + database); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	dsn := kind.DSN(server.Port, database)
	if db, err = faults.Open(kind.Driver, dsn); err == nil {
		err = sqlstore.Migrate(context.Background(), db)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.Meter = func() (*Meter, error) { return newMeter(server.Address()) }
	s.Open = func(ctx context.Context, through *Meter) (onlyonce.Store, func(), error) {
		if through == nil {
			return open(ctx, dsn)
		}
		return open(ctx, strings.Replace(dsn, server.Address(), through.Address(), 1))
	}
	s.Written = func(ctx context.Context) (Written, error) { return written(ctx, db) }
	return s, nil
}

// NewPostgreSQL starts PostgreSQL, with a pgxstore or a sqlstore.
func NewPostgreSQL(pgx bool) (*System, error) {
	name, open := "PostgreSQL by sqlstore", openPool("pgx")
	if pgx {
		name, open = "PostgreSQL by pgxstore", openPgx
	}
	return newServer(name, faults.PostgreSQL, open, func(ctx context.Context, db *sql.DB) (w Written, err error) {
		// A session adds its counts to the statistics when it ends.
		for sessions := 1; sessions > 0 && err == nil; {
			err = db.QueryRowContext(ctx, `SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND pid <> pg_backend_pid() AND backend_type = 'client backend'`, database).Scan(&sessions)
		}
		if err != nil {
			return w, err
		}
		err = db.QueryRowContext(ctx, `SELECT n_tup_ins + n_tup_upd, pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0'), pg_total_relation_size('onlyonce_records')
			FROM pg_stat_user_tables WHERE relname = 'onlyonce_records'`).Scan(&w.Writes, &w.Log, &w.Data)
		return w, err
	})
}

// NewMariaDB starts MariaDB.
func NewMariaDB() (*System, error) {
	return newServer("MariaDB by sqlstore", faults.MariaDB, openPool("mysql"), func(ctx context.Context, db *sql.DB) (w Written, err error) {
		rows, err := db.QueryContext(ctx, `SHOW GLOBAL STATUS WHERE Variable_name IN ('Handler_write', 'Handler_update', 'Innodb_os_log_written')`)
		if err != nil {
			return w, err
		}
		defer rows.Close()
		for rows.Next() {
			var name string
			var value float64
			if err := rows.Scan(&name, &value); err != nil {
				return w, err
			}
			if strings.EqualFold(name, "Innodb_os_log_written") {
				w.Log = value
			} else {
				w.Writes += value
			}
		}
		if err := rows.Err(); err != nil {
			return w, err
		}
		err = db.QueryRowContext(ctx, `SELECT SUM(file_size) FROM information_schema.innodb_sys_tablespaces WHERE name = '`+database+`/onlyonce_records'`).Scan(&w.Data)
		return w, err
	})
}

func openPgx(ctx context.Context, dsn string) (onlyonce.Store, func(), error) {
	return faults.OpenPgxStore(ctx, dsn, connections)
}

func openPool(driver string) func(context.Context, string) (onlyonce.Store, func(), error) {
	return func(ctx context.Context, dsn string) (onlyonce.Store, func(), error) {
		return faults.OpenStore(ctx, driver, dsn, connections)
	}
}

// NewSQLite creates a file. A connection keeps the log from being emptied when stores are
// closed.
func NewSQLite() (*System, error) {
	dir, err := os.MkdirTemp("", "onlyonce")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "records.db")
	dsn := "file:" + file + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=wal_autocheckpoint(0)&_txlock=immediate"
	db, err := faults.Open("sqlite", dsn)
	if err == nil {
		err = sqlstore.Migrate(context.Background(), db)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &System{
		Name: "SQLite",
		Open: func(ctx context.Context, _ *Meter) (onlyonce.Store, func(), error) {
			return faults.OpenStore(ctx, "sqlite", dsn, 0)
		},
		Written: func(ctx context.Context) (w Written, err error) {
			if err := db.QueryRowContext(ctx, `SELECT page_count * page_size FROM pragma_page_count, pragma_page_size`).Scan(&w.Data); err != nil {
				return w, err
			}
			log, err := os.ReadFile(file + "-wal")
			w.Log, w.Writes = float64(len(log)), float64(commits(log))
			return w, err
		},
		Close: func() error { return errors.Join(db.Close(), os.RemoveAll(dir)) },
	}, nil
}

// commits counts the transactions in a write-ahead log of SQLite: the last page of each has the
// size of the database in its header.
func commits(log []byte) (n int) {
	const header, frame = 32, 24
	if len(log) < header {
		return 0
	}
	page := int(binary.BigEndian.Uint32(log[8:]))
	for log = log[header:]; len(log) >= frame+page; log = log[frame+page:] {
		if binary.BigEndian.Uint32(log[4:]) != 0 {
			n++
		}
	}
	return n
}

func number(text, name string) (n float64, err error) {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			_, err := fmt.Sscan(rest, &n)
			return n, err
		}
	}
	return 0, fmt.Errorf("there is no %s", name)
}
