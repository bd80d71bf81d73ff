//go:build linux

package rounds

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// sqlServers are one server, or a primary and the one that takes its place.
type sqlServers struct {
	shared  string         // the directory of what servers are copied from
	server  *faults.Server // the only one; nil: there is a pair
	pair    *faults.Pair
	lags    bool                 // the replica lacks some of what was committed when the primary is killed
	clients *faults.CuttingProxy // which all clients come through: it leads to the primary
	kind    *faults.Kind
	open    func(ctx context.Context, dsn string) (Store, func(), error)
}

// database is the name of the one with the records.
const database = "rounds"

// newSQL sets up the database of servers that start makes of one.
func newSQL(kind *faults.Kind, open func(context.Context, string) (Store, func(), error), start func(*sqlServers, *faults.Server) error) (System, error) {
	d := &sqlServers{kind: kind, open: open}
	err := d.start(start)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *sqlServers) start(start func(*sqlServers, *faults.Server) error) (err error) {
	if d.shared, err = os.MkdirTemp("", "onlyonce"); err != nil {
		return err
	}
	if err = os.Chmod(d.shared, 0o755); err != nil { // another user runs the servers
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
	if _, err := s.Admin.Exec("CREATE DATABASE " + database); err != nil {
		return err
	}
	db, err := faults.Open(d.kind.Driver, d.kind.DSN(s.Port, database))
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return sqlstore.Migrate(ctx, db)
}

// NewPostgreSQL starts one server. Its store is a pgxstore, or a sqlstore.
func NewPostgreSQL(pgx bool) (System, error) {
	return newSQL(faults.PostgreSQL, openPostgreSQL(pgx), startSingle)
}

// NewStandby starts a primary and its standby, for which commits wait if it is synchronous. When
// the primary is killed, a standby that is not lacks some of what was committed.
func NewStandby(pgx, synchronous bool) (System, error) {
	return newSQL(faults.PostgreSQL, openPostgreSQL(pgx), func(d *sqlServers, s *faults.Server) (err error) {
		names := "*"
		if d.lags = !synchronous; d.lags {
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

// connections is how many a store may have.
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
func (d *sqlServers) Open(ctx context.Context, ways *Ways) (Store, func(), error) {
	address, err := ways.To(d.clients.Address())
	if err != nil {
		return nil, nil, err
	}
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return nil, nil, err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, nil, err
	}
	return d.open(ctx, d.kind.DSN(port, database))
}

// Kill kills the only server and starts it again, or the primary for good. Its replica takes its
// place and gets another one. Often, it was cut off, and commits waited for it.
func (d *sqlServers) Kill(ctx context.Context, rng *rand.Rand) error {
	if d.pair == nil {
		return d.server.Restart()
	}
	switch {
	case d.lags:
		d.pair.CutOff()
		if err := d.committed(ctx, 64<<10); err != nil {
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

// committed waits until PostgreSQL has written so many bytes more to its log.
func (d *sqlServers) committed(ctx context.Context, bytes int64) error {
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
