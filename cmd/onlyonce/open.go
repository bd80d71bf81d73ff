package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
	_ "modernc.org/sqlite" // the driver "sqlite"
)

// A storeURL says where records are kept.
type storeURL struct {
	engine string // as sqlstore.Migrations names it
	path   string // of the SQLite file, absolute
}

func (u storeURL) String() string { return u.engine + ":" + u.path }

// parseStoreURL reads sqlite:PATH or sqlite://PATH, the path being taken as it
// is. Its errors do not repeat the URL, which may hold a password.
func parseStoreURL(raw string) (storeURL, error) {
	scheme, path, ok := strings.Cut(raw, ":")
	switch {
	case !ok || strings.ContainsAny(scheme, `/\.`):
		return storeURL{}, usagef("the store URL has no scheme: write sqlite: before the path of the file")
	case scheme != "sqlite":
		return storeURL{}, usagef("stores of the scheme %q are not supported: write sqlite:PATH", scheme)
	}
	path = strings.TrimPrefix(path, "//")
	switch {
	case path == "":
		return storeURL{}, usagef("the store URL names no file: write sqlite:PATH")
	case path == ":memory:":
		return storeURL{}, usagef("a store in memory forgets everything with the process: write sqlite:PATH with the path of a file")
	case strings.ContainsRune(path, 0):
		return storeURL{}, usagef("the path of the store holds a NUL byte")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return storeURL{}, fmt.Errorf("find the store's file: %w", err)
	}
	return storeURL{engine: "sqlite", path: path}, nil
}

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

// openDB opens the database, and makes it if create is true and it is not there.
func (u storeURL) openDB(ctx context.Context, create bool) (*sql.DB, error) {
	if _, err := os.Stat(u.path); !create && errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no store at %v: check the path, or make one with onlyonce migrate", u)
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
	store, err := sqlstore.Open(ctx, db, sqlstore.Config{AcceptRisks: acceptRisks})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%v: %w", u, err), db.Close())
	}
	return &openStore{Store: store, db: db, url: u}, nil
}

// Close ends the store, then its database.
func (s *openStore) Close() error {
	return errors.Join(s.Store.Close(), s.db.Close())
}
