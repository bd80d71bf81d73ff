package storeurl

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
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/onlyonce-go/onlyonce/internal/storeurl/private"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
	_ "modernc.org/sqlite" // the driver "sqlite"
)

// DSN returns the data source name of a SQLite file for its driver, with the settings
// that the guarantees require. Unless create is true, the file must exist, and
// opening it does not change it.
func (u URL) DSN(create bool) string {
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
	return u.fileDSN(query)
}

// readDSN returns the data source name with which a SQLite file can only be read.
func (u URL) readDSN() string {
	return u.fileDSN(url.Values{"mode": {"ro"}, "_busy_timeout": {"5000"}, "_error_rc": {"true"}})
}

func (u URL) fileDSN(query url.Values) string {
	path := filepath.ToSlash(u.Path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // C:/… on Windows
	}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: query.Encode()}).String()
}

// openForReading opens the SQL database of a store, and a SQLite file so that it can't be
// written.
func (u URL) openForReading(ctx context.Context) (*sql.DB, error) {
	if u.Engine != SQLite {
		return u.OpenDB(ctx, false)
	}
	if err := u.CheckPath(false); err != nil {
		return nil, err
	}
	return u.openFile(ctx, u.readDSN())
}

// OpenDB opens the SQL database of a store, and creates its file if create is true and
// the file does not exist.
func (u URL) OpenDB(ctx context.Context, create bool) (*sql.DB, error) {
	switch u.Engine {
	case Redis, NATS, Etcd, DynamoDB:
		return nil, errRecordsOnly(u)
	case Postgres, MySQL:
		return u.openServer(ctx)
	}
	if err := u.CheckPath(create); err != nil {
		return nil, err
	}
	if create {
		if err := private.Make(u.Path); err != nil {
			return nil, fmt.Errorf("create %v: %w", u, err)
		}
	}
	return u.openFile(ctx, u.DSN(create))
}

// openFile opens a SQLite file.
func (u URL) openFile(ctx context.Context, dsn string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", dsn)
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

// errRecordsOnly is the error of a command that needs more than the records of a store.
func errRecordsOnly(u URL) error {
	return mistakef("%v can't be used here: a store in %s keeps records only; it has no tables, no transactions and no outbox: name a store in SQLite, PostgreSQL or MySQL", u, u.RecordsOnly())
}

// CheckPath returns an error with the reason why a SQLite file cannot be opened, for
// which SQLite itself has only "unable to open".
func (u URL) CheckPath(create bool) error {
	at, err := os.Stat(u.Path)
	_, noFolder := os.Stat(filepath.Dir(u.Path))
	switch {
	case err == nil && at.IsDir():
		return fmt.Errorf("%v is a directory: name a file in it, such as %s", u, filepath.Join(u.Path, "onlyonce.db"))
	case !create && errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no store at %v: check the path, or create one with onlyonce migrate (for onlyonce serve: onlyonce migrate --serve)", u)
	case errors.Is(noFolder, fs.ErrNotExist):
		return fmt.Errorf("there is no directory %s: create it first, or check the path", filepath.Dir(u.Path))
	}
	return nil
}

// MaxConnections is the largest number of connections that one process opens to a
// server.
const MaxConnections = 32

// connectWithin is how long a server may take to accept a connection. A server that is
// frozen, or behind a load balancer without one, may never respond.
const connectWithin = 15 * time.Second

func (u URL) openServer(ctx context.Context) (*sql.DB, error) {
	db, err := u.poolOf()
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(MaxConnections)
	db.SetMaxIdleConns(MaxConnections)
	if err := u.ping(ctx, db, connectWithin); err != nil {
		return nil, errors.Join(fmt.Errorf("open %v: %w", u, err), db.Close())
	}
	return db, nil
}

// poolOf returns a pool of connections to a server. It opens none.
func (u URL) poolOf() (*sql.DB, error) {
	if u.Engine == Postgres { // the driver of this name would read the URL only when it connects
		cfg, err := u.PoolConfig()
		if err != nil {
			return nil, err
		}
		return stdlib.OpenDB(*cfg.ConnConfig, stdlib.OptionBeforeConnect(cfg.BeforeConnect)), nil
	}
	db, err := sql.Open("mysql", u.Source)
	if err != nil {
		return nil, errDriver(u)
	}
	return db, nil
}

// readAgain reads the files of the URL, such as those of a client's certificate and of passwords,
// for a new connection: they may have been replaced since the last one.
func (u URL) readAgain(_ context.Context, last *pgx.ConnConfig) error {
	cfg, err := u.PoolConfig()
	if err != nil {
		return err
	}
	*last = *cfg.ConnConfig
	return nil
}

// ping opens a connection. PostgreSQL has a limit of its own for each host of its URL.
func (u URL) ping(ctx context.Context, db *sql.DB, within time.Duration) error {
	if u.Engine == MySQL {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, within)
		defer cancel()
	}
	return db.PingContext(ctx)
}

// PoolConfig returns the settings of a pool of connections to a PostgreSQL server. Each host
// of the URL has connectWithin to accept a connection, unless the URL has a connect_timeout.
// Each connection reads the files of the URL again.
func (u URL) PoolConfig() (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(u.Source)
	if file := new(fs.PathError); errors.As(err, &file) { // of a certificate, for example
		return nil, mistakef("open %v: %w", u, file)
	}
	if err != nil {
		return nil, errDriver(u)
	}
	cfg.MaxConns = MaxConnections
	cfg.BeforeConnect = u.readAgain
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = connectWithin
	}
	return cfg, nil
}

// errDriver is the error of a URL that a driver rejects. The driver's own error can
// contain parts of the URL.
func errDriver(u URL) error {
	return mistakef("open %v: its driver does not understand the URL: check its parameters, and write %s", u, Forms)
}

// A Store is a store with the SQL database it lives in.
type Store struct {
	*sqlstore.Store
	DB  *sql.DB
	URL URL
}

// With calls fn with the store that the URL raw names, which is there already, in a SQL
// database.
func With(ctx context.Context, raw string, fn func(*Store) error) (err error) {
	u, err := Parse(raw)
	if err != nil {
		return err
	}
	db, err := u.OpenDB(ctx, false)
	if err != nil {
		return err
	}
	store, err := u.Open(ctx, db, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return fn(store)
}

// OpenMigrated opens a store after creating or migrating its tables. It deletes no
// expired records.
func (u URL) OpenMigrated(ctx context.Context, acceptRisks []string) (*Store, error) {
	return u.OpenOwn(ctx, sqlstore.Config{AcceptRisks: acceptRisks, PurgeEvery: sqlstore.NeverPurge}, false)
}

// OpenOwn opens a store for a program that serves commands, after creating or migrating
// its tables. With noMigrate, it creates and changes no tables, and tables that are missing or
// of another version are an error. It changes the mode of a file only once SQLite has read
// it as a database, because a path may name a directory, a device or another program's file
// by mistake.
func (u URL) OpenOwn(ctx context.Context, cfg sqlstore.Config, noMigrate bool) (*Store, error) {
	db, err := u.OpenDB(ctx, !noMigrate)
	if err != nil {
		return nil, err
	}
	if u.Engine == SQLite && !slices.Contains(cfg.AcceptRisks, private.Risk) {
		if err := private.Tighten(u.Path, os.Chmod, slog.Default()); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	if !noMigrate {
		if err := sqlstore.Migrate(ctx, db); err != nil {
			return nil, errors.Join(fmt.Errorf("%v: %w", u, err), db.Close())
		}
	}
	return u.open(ctx, db, cfg)
}

// Open opens a store in db, whose tables must be up to date. It deletes no expired
// records. Closing the store closes db. If Open fails, it closes db.
func (u URL) Open(ctx context.Context, db *sql.DB, acceptRisks []string) (*Store, error) {
	return u.open(ctx, db, sqlstore.Config{AcceptRisks: acceptRisks, PurgeEvery: sqlstore.NeverPurge})
}

func (u URL) open(ctx context.Context, db *sql.DB, cfg sqlstore.Config) (*Store, error) {
	cfg.AcceptRisks = u.Risks(cfg.AcceptRisks)
	store, err := sqlstore.Open(ctx, db, cfg)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%v: %w", u, err), db.Close())
	}
	return &Store{Store: store, DB: db, URL: u}, nil
}

// Close closes the store, and then its database.
func (s *Store) Close() error {
	return errors.Join(s.Store.Close(), s.DB.Close())
}

// Risks returns those of the accepted risks that the store's package knows. The risk
// of a file's mode also applies to other files, and a store on a server has no file.
func (u URL) Risks(accepted []string) []string {
	if u.Engine == SQLite {
		return accepted
	}
	return slices.DeleteFunc(slices.Clone(accepted), func(name string) bool { return name == private.Risk })
}
