package storeurl

import (
	"context"
	"errors"
	"fmt"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/stores/redisstore"
	"github.com/redis/rueidis"
)

// DialRedis connects to the servers of a URL, and returns the settings of the store.
func (u URL) DialRedis() (rueidis.Client, redisstore.Config, error) {
	o, cfg, err := redisstore.ParseURL(u.Source)
	if err != nil {
		return nil, cfg, cli.Usagef("open %v: %w", u, err)
	}
	client, err := rueidis.NewClient(o)
	if err != nil {
		return nil, cfg, fmt.Errorf("open %v: %w", u, err)
	}
	return client, cfg, nil
}

// Records is a store of records, whatever the engine.
type Records interface {
	onlyonce.Store
	onlyonce.Lister
	onlyonce.Resolver
	onlyonce.Diagnoser
	Close() error
}

type redisRecords struct {
	*redisstore.Store
	client rueidis.Client
}

func (r redisRecords) Close() error {
	err := r.Store.Close()
	r.client.Close()
	return err
}

// OpenRecords opens a store that is there already, with the risks that are accepted
// here or, for Redis, in the URL.
func (u URL) OpenRecords(ctx context.Context, acceptRisks []string) (Records, error) {
	if u.Engine == Redis {
		return u.openRedis(ctx, acceptRisks)
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

func (u URL) openRedis(ctx context.Context, acceptRisks []string) (Records, error) {
	client, cfg, err := u.DialRedis()
	if err != nil {
		return nil, err
	}
	cfg.AcceptRisks = append(cfg.AcceptRisks, u.Risks(acceptRisks)...)
	store, err := redisstore.Open(ctx, client, cfg)
	if err != nil {
		client.Close()
		return nil, fmt.Errorf("%v: %w", u, err)
	}
	return redisRecords{store, client}, nil
}

// OpenOwnRecords opens a store for a program that serves commands. It creates or
// migrates the tables of a SQL database. It does not create the keys of a store in
// Redis, because missing keys show that the server has lost its records.
func (u URL) OpenOwnRecords(ctx context.Context, acceptRisks []string) (Records, error) {
	if u.Engine == Redis {
		return u.openRedis(ctx, acceptRisks)
	}
	return records(u.OpenMigrated(ctx, acceptRisks))
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
