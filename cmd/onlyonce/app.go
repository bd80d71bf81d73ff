package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/services/items"
	"github.com/onlyonce-go/onlyonce/services/orders"
	"github.com/onlyonce-go/onlyonce/services/sandboxes"
)

// An app is what serve serves: the APIs on their store.
type app struct {
	store     *openStore // of the items and the sandboxes
	ordersIn  *openStore // the same, unless that of the orders is on a server
	items     *items.API
	sandboxes *sandboxes.API
	orders    *orders.API
	tokens    sandboxes.Tokens
	metrics   *metrics
	health    *health
	named     bool // there is a list of tokens
	open      bool // callers need no token
}

// newApp opens the store and makes the APIs on it.
func newApp(ctx context.Context, cfg serveConfig, log *slog.Logger) (_ *app, err error) {
	a := &app{metrics: newMetrics(), named: cfg.tokens != "", open: cfg.allowAnonymous}
	if a.tokens, err = readTokens(cfg.tokens); err != nil {
		return nil, err
	}
	if err := a.openStores(ctx, cfg); err != nil {
		return nil, err
	}
	if err := a.makeAPIs(ctx, cfg, log); err != nil {
		return nil, errors.Join(err, a.closeStores())
	}
	if err := a.makeOrders(ctx, cfg, log); err != nil {
		return nil, errors.Join(err, a.close())
	}
	return a, nil
}

// openStores opens the store of all three APIs, or that of the orders on a
// server, and a file for the other two.
func (a *app) openStores(ctx context.Context, cfg serveConfig) error {
	u, err := parseStoreURL(cfg.store)
	if err != nil {
		return err
	}
	if a.ordersIn, err = u.openMigrated(ctx, cfg.acceptRisks); err != nil {
		return err
	}
	a.store = a.ordersIn
	if u.engine != engineSQLite {
		if u, err = parseStoreURL(cfg.file()); err == nil {
			a.store, err = u.openMigrated(ctx, nil)
		}
		if err != nil {
			return errors.Join(err, a.ordersIn.Close())
		}
	}
	a.health = &health{stores: []onlyonce.Store{a.store, a.ordersIn}}
	return nil
}

// stores says where the records are.
func (a *app) stores() string {
	if a.store == a.ordersIn {
		return a.store.url.String()
	}
	return fmt.Sprintf("%v (orders), %v (items, sandboxes)", a.ordersIn.url, a.store.url)
}

func (a *app) closeStores() error {
	if a.store == a.ordersIn {
		return a.store.Close()
	}
	return errors.Join(a.ordersIn.Close(), a.store.Close())
}

func (a *app) makeAPIs(ctx context.Context, cfg serveConfig, log *slog.Logger) (err error) {
	tenant := httponce.SingleTenant
	if a.named {
		tenant = caller
	}
	if a.items, err = items.New(ctx, a.store.db, a.store.Store, items.Config{
		Tenant: tenant, KeyTTL: cfg.itemsKeyTTL, PurgeEvery: cfg.itemsPurgeEvery, Lease: cfg.lease,
		Observer: a.metrics.observe, Log: log,
	}); err != nil {
		return err
	}
	wait := cfg.wait
	if wait == 0 {
		wait = -1 // not at all; 0 would be the default
	}
	a.sandboxes, err = sandboxes.New(ctx, a.store.db, a.store.Store, sandboxes.Config{
		Dir:    filepath.Join(cfg.data, "workspaces"),
		KeyTTL: cfg.sandboxesKeyTTL, MaxExtend: cfg.sandboxesMaxExtend, IdleTimeout: cfg.sandboxesIdleTimeout,
		Lease: cfg.lease, Wait: wait,
		Tokens: a.tokens, AllowAnonymous: cfg.allowAnonymous,
		Observer: a.metrics.observe, Log: log,
	})
	return err
}

// handler routes to the APIs and to what supervisors ask. The APIs see every
// path below theirs as it came: a ServeMux would redirect some.
func (a *app) handler() http.Handler {
	items := a.metrics.countInFlight(a.items)
	if a.named {
		items = identify(a.tokens, a.open, items)
	}
	sandboxes := a.metrics.countInFlight(a.sandboxes)
	orders := a.metrics.countInFlight(a.orders)
	others := http.NewServeMux()
	others.HandleFunc("GET /healthz", a.health.live)
	others.HandleFunc("GET /readyz", a.health.ready)
	others.Handle("GET /metrics", a.metrics.handler())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path + "/"; {
		case strings.HasPrefix(path, "/api/v1/items/"):
			items.ServeHTTP(w, r)
		case strings.HasPrefix(path, "/v1/sandboxes/"):
			sandboxes.ServeHTTP(w, r)
		case strings.HasPrefix(path, "/orders/"):
			orders.ServeHTTP(w, r)
		default:
			others.ServeHTTP(w, r)
		}
	})
}

// background is the work that the APIs do besides answering.
func (a *app) background() []func(context.Context) error {
	return []func(context.Context) error{a.items.Run, a.sandboxes.Run, a.orders.Run}
}

// closeWithin bounds how long sessions and store may take to end.
const closeWithin = 5 * time.Second

// close ends the sessions, then the store. A request that still runs loses its
// store as it would in a crash.
func (a *app) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	closed := make(chan error, 1)
	go func() { closed <- errors.Join(a.sandboxes.Close(ctx), a.closeStores()) }()
	select {
	case err := <-closed:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the store was still in use after %v", closeWithin)
	}
}
