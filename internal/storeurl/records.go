package storeurl

import (
	"context"
	"errors"
	"fmt"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// Records is a store of records, whatever the engine.
type Records interface {
	onlyonce.Store
	onlyonce.Lister
	onlyonce.Resolver
	onlyonce.Diagnoser
	Close() error
}

// OpenRecords opens a store that is there already, with the risks that are accepted
// here or, for Redis, NATS, etcd and DynamoDB, in the URL.
func (u URL) OpenRecords(ctx context.Context, acceptRisks []string) (Records, error) {
	switch u.Engine {
	case Redis:
		return u.openRedis(ctx, acceptRisks)
	case NATS:
		return u.openNATS(ctx, acceptRisks)
	case Etcd:
		return u.openEtcd(ctx, acceptRisks)
	case DynamoDB:
		return u.openDynamo(ctx, acceptRisks)
	}
	db, err := u.OpenDB(ctx, false)
	if err != nil {
		return nil, err
	}
	return records(u.Open(ctx, db, acceptRisks))
}

// records keeps the pointer that goes with an error out of the interface.
func records(s *Store, err error) (Records, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// OpenOwnRecords opens a store for a program that serves commands. It creates or
// migrates the tables of a SQL database, unless noMigrate is set. It creates nothing in a store
// that keeps only records, because a missing object shows that the server has lost its
// records; of cfg, it uses AcceptRisks only. A store on PostgreSQL is notified of settlements by
// other processes.
func (u URL) OpenOwnRecords(ctx context.Context, cfg sqlstore.Config, noMigrate bool) (Records, error) {
	switch {
	case u.RecordsOnly() != "":
		return u.OpenRecords(ctx, cfg.AcceptRisks)
	case u.Engine == Postgres:
		return u.openPgx(ctx, cfg, noMigrate)
	}
	return records(u.OpenOwn(ctx, cfg, noMigrate))
}

// WithRecords calls fn with the store that the URL raw names, which is there already.
func WithRecords(ctx context.Context, raw string, fn func(Records) error) (err error) {
	u, err := Parse(raw)
	if err != nil {
		return err
	}
	store, err := u.OpenRecords(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return fn(store)
}

// WithReader calls fn with the store that the URL raw names, which is there already, for
// reading. In a SQL database, it needs only the right to read: it neither migrates nor
// writes.
func WithReader(ctx context.Context, raw string, fn func(onlyonce.Lister) error) (err error) {
	u, err := Parse(raw)
	if err != nil {
		return err
	}
	if u.RecordsOnly() != "" {
		return WithRecords(ctx, raw, func(store Records) error { return fn(store) })
	}
	db, err := u.openForReading(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	reader, err := sqlstore.OpenReader(ctx, db)
	if err != nil {
		return fmt.Errorf("%v: %w", u, err)
	}
	return fn(reader)
}
