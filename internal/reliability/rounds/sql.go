//go:build linux

package rounds

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// sqlServers are one server, or a primary and the one that takes its place.
type sqlServers struct {
	shared       string         // the directory with the data that new servers start from
	server       *faults.Server // the only server; nil: there is a pair
	pair         *faults.Pair
	losesCommits bool                 // the replica lacks some commits when the primary is killed
	clients      *faults.CuttingProxy // in front of the primary, for all clients
	kind         *faults.Kind
	open         func(ctx context.Context, dsn string) (Store, func(), error)
}

// database is the name of the database with the records.
const database = "rounds"

// newSQL starts a server, calls start, which may add a replica, and creates the database.
func newSQL(kind *faults.Kind, open func(context.Context, string) (Store, func(), error), start func(*sqlServers, *faults.Server) error) (System, error) {
	d := &sqlServers{kind: kind, open: open}
	err := d.start(start)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *sqlServers) start(start func(*sqlServers, *faults.Server) error) (err error) {
	if d.shared, err = newShared(); err != nil {
		return err
	}
	s, err := faults.New(d.kind, d.shared)
	if err != nil {
		return err
	}
	if err := start(d, s); err != nil {
		return err
	}
	if d.clients, err = faults.NewCuttingProxy(s.Address()); err != nil {
		return err
	}
	return createDatabase(d.kind, s)
}

// newShared makes a directory for the data that servers start from.
func newShared() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "onlyonce"); err == nil {
		err = os.Chmod(dir, 0o755) // another user runs the servers
	}
	return dir, err
}

// createDatabase creates the database with the records on a server.
func createDatabase(kind *faults.Kind, s *faults.Server) error {
	if _, err := s.Admin.Exec("CREATE DATABASE " + database); err != nil {
		return err
	}
	db, err := faults.Open(kind.Driver, kind.DSN(s.Port, database))
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return sqlstore.Migrate(ctx, db)
}

// dsnThrough returns the DSN of the database behind two proxies: one of a test's, and one that
// leads to the primary.
func dsnThrough(proxies *Proxies, clients *faults.CuttingProxy, kind *faults.Kind) (string, error) {
	address, err := proxies.AddressFor(clients.Address())
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(address)
	return kind.DSN(port, database), err
}

// NewPostgreSQL starts one server. Its store is a pgxstore or a sqlstore.
func NewPostgreSQL(pgx bool) (System, error) {
	return newSQL(faults.PostgreSQL, openPostgreSQL(pgx), startSingle)
}

// NewStandby starts a primary and its standby. Commits wait for a synchronous standby. An
// asynchronous one lacks some commits when the primary is killed.
func NewStandby(pgx, synchronous bool) (System, error) {
	return newSQL(faults.PostgreSQL, openPostgreSQL(pgx), func(d *sqlServers, s *faults.Server) (err error) {
		names := "*"
		if d.losesCommits = !synchronous; d.losesCommits {
			names = ""
		}
		d.pair, err = faults.NewStandbyPair(s, names)
		return err
	})
}

// NewMariaDB starts one server.
func NewMariaDB() (System, error) { return newSQL(faults.MariaDB, openPool("mysql"), startSingle) }

// NewReplica starts a primary and its replica, for which commits wait.
func NewReplica() (System, error) {
	return newSQL(faults.Replicated, openPool("mysql"), func(d *sqlServers, s *faults.Server) (err error) {
		d.pair, err = faults.NewReplicaPair(s, d.shared, true)
		return err
	})
}

func startSingle(d *sqlServers, s *faults.Server) error {
	d.server = s
	return nil
}

func openPostgreSQL(pgx bool) func(context.Context, string) (Store, func(), error) {
	if pgx {
		return openPgx
	}
	return openPool("pgx")
}

// connections is the maximum number of connections of a store.
const connections = 8

func openPgx(ctx context.Context, dsn string) (Store, func(), error) {
	return faults.OpenPgxStore(ctx, dsn, connections)
}

func openPool(driver string) func(context.Context, string) (Store, func(), error) {
	return func(ctx context.Context, dsn string) (Store, func(), error) {
		return faults.OpenStore(ctx, driver, dsn, connections)
	}
}

// Open opens a store with connections of its own.
func (d *sqlServers) Open(ctx context.Context, proxies *Proxies) (Store, func(), error) {
	dsn, err := dsnThrough(proxies, d.clients, d.kind)
	if err != nil {
		return nil, nil, err
	}
	return d.open(ctx, dsn)
}

// Kill kills the only server and starts it again. Of a pair, it kills the primary for good: the
// replica takes its place, and gets a replica of its own. Often, it is cut off before, and
// commits wait for it.
func (d *sqlServers) Kill(ctx context.Context, rng *rand.Rand) error {
	if d.pair == nil {
		return d.server.Restart()
	}
	switch {
	case d.losesCommits:
		d.pair.CutOff()
		if err := d.awaitWAL(ctx, 64<<10); err != nil {
			return err
		}
	case rng.IntN(2) > 0:
		d.pair.CutOff()
		time.Sleep(time.Duration(rng.Int64N(int64(100 * time.Millisecond))))
	}
	if err := d.pair.Promote(); err != nil {
		return err
	}
	d.clients.SetTarget(d.pair.Primary.Address())
	return d.pair.Follow()
}

// awaitWAL waits until PostgreSQL has written this number of bytes to its log.
func (d *sqlServers) awaitWAL(ctx context.Context, bytes int64) error {
	var began sql.NullString
	for ctx.Err() == nil {
		var at string
		var more int64
		err := d.pair.Primary.Admin.QueryRowContext(ctx, "SELECT pg_current_wal_flush_lsn()::text, COALESCE(pg_current_wal_flush_lsn() - $1::text::pg_lsn, 0)::bigint", began).Scan(&at, &more)
		if err != nil || more >= bytes {
			return err
		}
		if !began.Valid {
			began = sql.NullString{String: at, Valid: true}
		}
		time.Sleep(time.Millisecond)
	}
	return ctx.Err()
}

// Close ends the servers.
func (d *sqlServers) Close() (err error) {
	if d.clients != nil {
		d.clients.Close()
	}
	if d.server != nil {
		err = d.server.Close()
	}
	if d.pair != nil {
		err = errors.Join(err, d.pair.Close())
	}
	return errors.Join(err, os.RemoveAll(d.shared))
}
