package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
	_ "modernc.org/sqlite" // the driver "sqlite"
)

// dsn is what the driver is told: the settings under which the promise holds.
// Unless create is true the file must exist, and is not changed by being opened.
func (u storeURL) dsn(create bool) string {
	query := url.Values{
		"mode":          {"rw"},
		"_busy_timeout": {"5000"},
		"_synchronous":  {"FULL"},
		"_foreign_keys": {"on"},
		"_txlock":       {"immediate"},
		"_error_rc":     {"true"},
	}
	if create {
		query.Set("mode", "rwc")
		query.Set("_journal_mode", "WAL")
	}
	path := filepath.ToSlash(u.path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // C:/… on Windows
	}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: query.Encode()}).String()
}

// openDB opens the database, and makes its file if create is true and it is not
// there.
func (u storeURL) openDB(ctx context.Context, create bool) (*sql.DB, error) {
	if u.engine != engineSQLite {
		return u.openServer(ctx)
	}
	if err := u.checkPath(create); err != nil {
		return nil, err
	}
	if create {
		if err := makePrivate(u.path); err != nil {
			return nil, fmt.Errorf("make %v: %w", u, err)
		}
	}
	db, err := sql.Open("sqlite", u.dsn(create))
	if err != nil {
		return nil, fmt.Errorf("open %v: %w", u, err)
	}
	readers := max(4, 2*runtime.GOMAXPROCS(0))
	db.SetMaxOpenConns(readers)
	db.SetMaxIdleConns(readers)
	if err := db.PingContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open %v: %w", u, err), db.Close())
	}
	return db, nil
}

// checkPath says what the database would only call unable to open.
func (u storeURL) checkPath(create bool) error {
	at, err := os.Stat(u.path)
	_, noFolder := os.Stat(filepath.Dir(u.path))
	switch {
	case err == nil && at.IsDir():
		return fmt.Errorf("%v is a folder: name a file in it, such as %s", u, filepath.Join(u.path, "onlyonce.db"))
	case !create && errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no store at %v: check the path, or make one with onlyonce migrate", u)
	case errors.Is(noFolder, fs.ErrNotExist):
		return fmt.Errorf("there is no folder %s: make it first, or check the path", filepath.Dir(u.path))
	}
	return nil
}

// drivers are those of the engines that are servers.
var drivers = map[string]string{enginePostgres: "pgx", engineMySQL: "mysql"}

// serverConnections bounds what one process takes of a server.
const serverConnections = 32

func (u storeURL) openServer(ctx context.Context) (*sql.DB, error) {
	db, err := sql.Open(drivers[u.engine], u.source)
	if err != nil {
		return nil, usagef("open %v: its driver does not understand the URL: write %s", u, storeForms)
	}
	db.SetMaxOpenConns(serverConnections)
	db.SetMaxIdleConns(serverConnections)
	if err := db.PingContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open %v: %w", u, err), db.Close())
	}
	return db, nil
}

// An openStore is a store with the database it lives in.
type openStore struct {
	*sqlstore.Store
	db  *sql.DB
	url storeURL
}

// withStore calls fn with a store that is there already.
func withStore(ctx context.Context, raw string, fn func(*openStore) error) (err error) {
	u, err := parseStoreURL(raw)
	if err != nil {
		return err
	}
	db, err := u.openDB(ctx, false)
	if err != nil {
		return err
	}
	store, err := u.open(ctx, db, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return fn(store)
}

// openMigrated opens a store, making it or bringing it up to date first.
func (u storeURL) openMigrated(ctx context.Context, acceptRisks []string) (*openStore, error) {
	if u.engine == engineSQLite && !slices.Contains(acceptRisks, riskFileMode) {
		if err := tighten(u.path, os.Chmod, slog.Default()); err != nil {
			return nil, err
		}
	}
	db, err := u.openDB(ctx, true)
	if err != nil {
		return nil, err
	}
	if err := sqlstore.Migrate(ctx, db); err != nil {
		return nil, errors.Join(fmt.Errorf("%v: %w", u, err), db.Close())
	}
	return u.open(ctx, db, acceptRisks)
}

func (u storeURL) open(ctx context.Context, db *sql.DB, acceptRisks []string) (*openStore, error) {
	store, err := sqlstore.Open(ctx, db, sqlstore.Config{AcceptRisks: u.storeRisks(acceptRisks)})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%v: %w", u, err), db.Close())
	}
	return &openStore{Store: store, db: db, url: u}, nil
}

// Close ends the store, then its database.
func (s *openStore) Close() error {
	return errors.Join(s.Store.Close(), s.db.Close())
}
