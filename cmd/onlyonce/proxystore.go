package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
	"github.com/onlyonce-go/onlyonce/stores/pgxstore"
)

// A proxyStore is where a proxy keeps its records.
type proxyStore struct {
	onlyonce.Store
	shown   string // its URL, without a password
	forgets bool   // with the process
	close   func() error
}

// inMemory is the URL of a store that forgets.
const inMemory = "memory://"

// openProxyStore opens a store, making it or bringing it up to date first.
func openProxyStore(ctx context.Context, raw string, acceptRisks []string) (*proxyStore, error) {
	if raw == inMemory {
		return &proxyStore{Store: memstore.New(memstore.Config{}), shown: raw, forgets: true, close: func() error { return nil }}, nil
	}
	if strings.HasPrefix(raw, "memory:") {
		return nil, usagef("the store URL of a store in memory is %s and nothing more", inMemory)
	}
	u, err := parseStoreURL(raw)
	if err != nil {
		return nil, err
	}
	if u.engine == enginePostgres {
		return u.openPgx(ctx, acceptRisks)
	}
	s, err := u.openMigrated(ctx, acceptRisks)
	if err != nil {
		return nil, err
	}
	return &proxyStore{Store: s.Store, shown: u.String(), close: s.Close}, nil
}

// openPgx opens a store on PostgreSQL that hears of answers which other proxies
// have got.
func (u storeURL) openPgx(ctx context.Context, acceptRisks []string) (*proxyStore, error) {
	cfg, err := pgxpool.ParseConfig(u.source)
	if err != nil {
		return nil, usagef("open %v: its driver does not understand the URL: write %s", u, storeForms)
	}
	cfg.MaxConns = serverConnections
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open %v: %w", u, err)
	}
	fail := func(err error) (*proxyStore, error) {
		pool.Close()
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		return fail(fmt.Errorf("open %v: %w", u, err))
	}
	if err := pgxstore.Migrate(ctx, pool); err != nil {
		return fail(fmt.Errorf("%v: %w", u, err))
	}
	store, err := pgxstore.Open(ctx, pool, pgxstore.Config{AcceptRisks: acceptRisks})
	if err != nil {
		return fail(fmt.Errorf("%v: %w", u, err))
	}
	return &proxyStore{Store: store, shown: u.String(), close: func() error {
		err := store.Close()
		pool.Close()
		return err
	}}, nil
}
