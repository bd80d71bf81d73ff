package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/proxyfile"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
	"github.com/onlyonce-go/onlyonce/stores/pgxstore"
)

// A proxyStore is where a proxy keeps its records.
type proxyStore struct {
	onlyonce.Store
	shown   string // its URL, without a password
	secret  []byte // keys the fingerprints in it; nil: nothing does
	forgets bool   // with the process
	close   func() error
}

// inMemory is the URL of a store that forgets.
const inMemory = "memory://"

// openProxyStore opens a store, making it or bringing it up to date first.
func openProxyStore(ctx context.Context, f *proxyfile.File, log *slog.Logger) (*proxyStore, error) {
	raw, err := storeURLOf(f)
	if err != nil {
		return nil, err
	}
	if raw == inMemory {
		s := &proxyStore{Store: memstore.New(memstore.Config{}), shown: raw, secret: []byte(rand.Text()), forgets: true, close: func() error { return nil }}
		if path := f.Store.FingerprintSecretFile; path != "" {
			s.secret, err = readSecret(path, f.AcceptRisks)
		}
		return s, err
	}
	if strings.HasPrefix(raw, "memory:") {
		return nil, usagef("the store URL of a store in memory is %s and nothing more", inMemory)
	}
	u, err := parseStoreURL(raw)
	if err != nil {
		return nil, err
	}
	var store *proxyStore
	var list onlyonce.Lister
	if u.engine == enginePostgres {
		store, err = u.openPgx(ctx, f.AcceptRisks)
	} else if s, other := u.openMigrated(ctx, f.AcceptRisks); other == nil {
		store, list = &proxyStore{Store: s.Store, shown: u.String(), close: s.Close}, s
	} else {
		err = other
	}
	if err != nil {
		return nil, err
	}
	if store.secret, err = fingerprintSecret(ctx, u, list, f.Store.FingerprintSecretFile, f.AcceptRisks, log); err != nil {
		return nil, errors.Join(err, store.close())
	}
	return store, nil
}

// storeURLOf returns the store's URL, from the settings or the file they name.
func storeURLOf(f *proxyfile.File) (string, error) {
	if f.Store.URLFile == "" {
		return f.Store.URL, nil
	}
	return readStoreURL(f.Store.URLFile, f.AcceptRisks)
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
	store, err := pgxstore.Open(ctx, pool, pgxstore.Config{AcceptRisks: u.storeRisks(acceptRisks)})
	if err != nil {
		return fail(fmt.Errorf("%v: %w", u, err))
	}
	return &proxyStore{Store: store, shown: u.String(), close: func() error {
		err := store.Close()
		pool.Close()
		return err
	}}, nil
}
