package serve

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/logging"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/metrics"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/server"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/telemetry"
	"github.com/onlyonce-go/onlyonce/console"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
	"github.com/onlyonce-go/onlyonce/services/items"
	"github.com/onlyonce-go/onlyonce/services/orders"
	"github.com/onlyonce-go/onlyonce/services/sandboxes"
	"github.com/onlyonce-go/onlyonce/stores/cryptstore"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// An app has the APIs that serve serves, on their store.
type app struct {
	store        *storeurl.Store // of the items and the sandboxes
	ordersIn     *storeurl.Store // the same, unless that of the orders is on a server
	records      records         // of store, as the APIs and the console see them
	orderRecords records         // those of ordersIn
	secret       []byte          // keys the fingerprints in store
	inOrders     []byte          // keys those in ordersIn
	items        *items.API
	sandboxes    *sandboxes.API
	orders       *orders.API
	tokens       sandboxes.Tokens
	metrics      *metrics.Set
	tracing      *telemetry.Tracing
	counts       struct{ items, sandboxes, orders *metrics.API }
	health       *server.Health
	watches      []*server.StoreWatch                     // of store and ordersIn
	meters       struct{ store, ordersIn *console.Meter } // the same, if the stores are
	consoles     map[string]http.Handler                  // by their paths
	hasTokens    bool                                     // there is a list of tokens
	open         bool                                     // callers need no token
	hasAdmin     bool                                     // supervisors ask at another address
	hasConsole   bool                                     // there are tokens for it
	indexPage    http.HandlerFunc                         // the page at /
	hosts        []string                                 // names of this machine, beside localhost
}

// newApp opens the store and makes the APIs on it.
func newApp(ctx context.Context, cfg config, spans *telemetry.Tracing, log *slog.Logger) (_ *app, err error) {
	a := &app{metrics: metrics.New(), tracing: spans, hasTokens: cfg.tokens != "", open: cfg.allowAnonymous, hasAdmin: cfg.admin != "", hasConsole: cfg.consoleTokens != "", hosts: cfg.hosts(cfg.listen)}
	if a.tokens, err = readTokens(cfg.tokens, cfg.acceptRisks); err != nil {
		return nil, err
	}
	if err := a.openStores(ctx, cfg, log); err != nil {
		return nil, err
	}
	if err := a.readSecrets(ctx, cfg, log); err != nil {
		return nil, errors.Join(err, a.closeStores())
	}
	if err := a.makeAPIs(ctx, cfg, log); err != nil {
		return nil, errors.Join(err, a.closeStores())
	}
	if err := a.makeOrders(ctx, cfg, log); err != nil {
		return nil, errors.Join(err, a.close())
	}
	if a.indexPage, err = a.index(); err != nil {
		return nil, errors.Join(err, a.close())
	}
	if err := a.makeConsoles(cfg, log); err != nil {
		return nil, errors.Join(err, a.close())
	}
	return a, nil
}

// openStores opens the store of all three APIs, or that of the orders on a
// server, and a file for the other two.
func (a *app) openStores(ctx context.Context, cfg config, log *slog.Logger) error {
	cipher, err := cfg.encryption.Cipher()
	switch {
	case err != nil && cfg.encryption.KeysFile != "":
		return fmt.Errorf("--encryption-keys-file (%s): %w", cli.EnvName("encryption-keys-file"), err)
	case err != nil:
		return err
	}
	u, err := storeurl.Parse(cfg.store)
	if err != nil {
		return err
	}
	a.meters.store = console.NewMeter()
	a.meters.ordersIn = a.meters.store
	name := "main" // in the metrics
	if u.Engine != storeurl.SQLite {
		name = "orders"
		a.meters.ordersIn = console.NewMeter()
	}
	if a.ordersIn, err = u.OpenOwn(ctx, a.storeConfig(cfg, name, cfg.acceptRisks, a.meters.ordersIn, log), cfg.noMigrate); err != nil {
		return err
	}
	a.store = a.ordersIn
	if u.Engine != storeurl.SQLite {
		if u, err = storeurl.Parse(cfg.file()); err == nil {
			a.store, err = u.OpenOwn(ctx, a.storeConfig(cfg, "main", nil, a.meters.store, log), cfg.noMigrate)
		}
		if err != nil {
			return errors.Join(err, a.ordersIn.Close())
		}
	}
	a.records, a.orderRecords = encrypted(cipher, a.store.Store), encrypted(cipher, a.ordersIn.Store)
	a.counts.items, a.counts.sandboxes, a.counts.orders = a.metrics.API("main", "items"), a.metrics.API("main", "sandboxes"), a.metrics.API(name, "orders")
	a.metrics.Store("main").Watch(a.store)
	a.metrics.Store(name).Watch(a.ordersIn)
	a.watches = []*server.StoreWatch{server.NewStoreWatch(a.store.URL.String(), a.store, a.metrics.Store("main"), log)}
	if a.store != a.ordersIn {
		a.watches = append(a.watches, server.NewStoreWatch(a.ordersIn.URL.String(), a.ordersIn, a.metrics.Store(name), log))
	}
	a.health = &server.Health{}
	for _, w := range a.watches {
		a.health.Checks = append(a.health.Checks, w.Check)
	}
	return nil
}

// records are a store's records for the APIs and the console.
type records interface {
	onlyonce.TxStore[*sql.Tx]
	onlyonce.Lister
	onlyonce.Resolver
}

// encrypted returns the records of a store, whose contents are encrypted unless the cipher is
// nil.
func encrypted(cipher *cryptstore.Cipher, store *sqlstore.Store) records {
	if cipher == nil {
		return store
	}
	return cryptstore.WrapTx(cipher, store).(records) // it has the powers of the store
}

// storeConfig returns how to open a store, whose purges are counted under the name.
func (a *app) storeConfig(cfg config, name string, acceptRisks []string, meter *console.Meter, log *slog.Logger) sqlstore.Config {
	c := sqlstore.Config{AcceptRisks: acceptRisks, PurgeEvery: sqlstore.NeverPurge}
	if cfg.purgeEvery != 0 {
		c.PurgeEvery, c.Observer = time.Duration(cfg.purgeEvery), onlyonce.Tee(a.metrics.Purges(name, log), meter.Observe)
	}
	return c
}

func (a *app) readSecrets(ctx context.Context, cfg config, log *slog.Logger) (err error) {
	a.secret, err = storeurl.FingerprintSecret(ctx, a.store.URL, a.store, cfg.secretFile, cfg.acceptRisks, log)
	if err != nil || a.store == a.ordersIn {
		a.inOrders = a.secret
		return err
	}
	a.inOrders, err = storeurl.FingerprintSecret(ctx, a.ordersIn.URL, a.ordersIn, cfg.secretFile, cfg.acceptRisks, log)
	return err
}

// stores returns, for people, where the records are.
func (a *app) stores() string {
	if a.store == a.ordersIn {
		return a.store.URL.String()
	}
	return fmt.Sprintf("%v (orders), %v (items, sandboxes)", a.ordersIn.URL, a.store.URL)
}

func (a *app) closeStores() error {
	if a.store == a.ordersIn {
		return a.store.Close()
	}
	return errors.Join(a.ordersIn.Close(), a.store.Close())
}

func (a *app) makeAPIs(ctx context.Context, cfg config, log *slog.Logger) (err error) {
	tenant := caller
	if !a.hasTokens {
		tenant = func(*http.Request) string { return anonymous }
	}
	if a.items, err = items.New(ctx, a.store.DB, a.records, items.Config{
		NoMigrate: cfg.noMigrate, FingerprintSecret: a.secret,
		Tenant: tenant, Keep: cfg.itemsKeep, Lease: cfg.lease,
		Observer: a.observe(a.counts.items, a.meters.store), Traceparent: a.tracing.Traceparent(), Log: log, ShowKey: cfg.log.ShowKey(),
	}); err != nil {
		return err
	}
	wait := cfg.wait
	if wait == 0 {
		wait = -1 // not at all; 0 would be the default
	}
	a.sandboxes, err = sandboxes.New(ctx, a.store.DB, a.records, sandboxes.Config{
		Dir:  filepath.Join(cfg.data, "workspaces"),
		Keep: cfg.sandboxesKeep, MaxExtend: cfg.sandboxesMaxExtend, MaxSessions: cfg.sandboxesMaxSessions, IdleTimeout: cfg.sandboxesIdleTimeout,
		Lease: cfg.lease, Wait: wait,
		Tokens: a.tokens, AllowAnonymous: cfg.allowAnonymous,
		NoMigrate:         cfg.noMigrate,
		FingerprintSecret: a.secret,
		Observer:          a.observe(a.counts.sandboxes, a.meters.store), Traceparent: a.tracing.Traceparent(), Log: log, ShowKey: cfg.log.ShowKey(),
	})
	return err
}

// observe returns the Observer of an API, which counts for the metrics and for the console, and
// traces.
func (a *app) observe(api *metrics.API, meter *console.Meter) onlyonce.Observer {
	return onlyonce.Tee(api.Observe, a.tracing.Observe, meter.Observe)
}

// Where the APIs are.
const (
	itemsPath     = "/api/v1/items"
	sandboxesPath = "/v1/sandboxes"
	ordersPath    = "/orders"
)

// apiOf returns the path of the API that a request is for, or "".
func apiOf(r *http.Request) string {
	for _, root := range []string{itemsPath, sandboxesPath, ordersPath} {
		if strings.HasPrefix(r.URL.Path+"/", root+"/") {
			return root
		}
	}
	return ""
}

// handler routes to the APIs and to the health checks. The APIs see every
// path below theirs as it came: a ServeMux would redirect some.
func (a *app) handler() http.Handler {
	items := a.counts.items.CountActive(a.items)
	if a.hasTokens {
		items = identify(a.tokens, a.open, items)
	}
	sandboxes := a.counts.sandboxes.CountActive(a.sandboxes)
	orders := a.counts.orders.CountActive(a.orders)
	others := http.NewServeMux()
	others.HandleFunc("GET /{$}", a.indexPage)
	describe(others)
	if !a.hasAdmin {
		server.HandleProbes(others, a.health, a.forOperators(a.metrics.Handler()))
	}
	return a.doubting(func(w http.ResponseWriter, r *http.Request) {
		switch apiOf(r) {
		case itemsPath:
			items.ServeHTTP(w, r)
		case sandboxesPath:
			sandboxes.ServeHTTP(w, r)
		case ordersPath:
			orders.ServeHTTP(w, r)
		default:
			if path.Clean(r.URL.Path) != r.URL.Path { // which others would redirect, to one of the APIs too
				http.NotFound(w, r)
				return
			}
			others.ServeHTTP(w, r)
		}
	})
}

// describe adds the descriptions of the APIs to mux.
func describe(mux *http.ServeMux) {
	for api, description := range map[string]string{"items": items.OpenAPI(), "sandboxes": sandboxes.OpenAPI(), "orders": orders.OpenAPI()} {
		server.HandleOpenAPI(mux, api, description)
	}
}

// doubting looks at the stores when h says that it can't work.
func (a *app) doubting(h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ctx := logging.WithRequest(r.Context(), r); ctx != r.Context() {
			r = r.WithContext(ctx)
		}
		c := server.StatusWriter{ResponseWriter: w}
		h(&c, r)
		if c.Status == http.StatusServiceUnavailable || c.Status == http.StatusInternalServerError {
			for _, w := range a.watches {
				w.CheckSoon()
			}
		}
	})
}

// background returns the tasks that run beside the server.
func (a *app) background() []func(context.Context) error {
	tasks := []func(context.Context) error{a.sandboxes.Run, a.orders.Run}
	for _, w := range a.watches {
		tasks = append(tasks, w.Run)
	}
	return tasks
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
