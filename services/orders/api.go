package orders

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"sync/atomic"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/services/internal/caller"
	"github.com/onlyonce-go/onlyonce/services/internal/schema"
	"github.com/onlyonce-go/onlyonce/services/internal/serving"
)

//go:embed migrations
var migrations embed.FS

// An API serves /orders and the paths below it.
type API struct {
	*serving.Router
	cfg     Config
	db      *sql.DB
	engine  schema.Engine
	origin  string // the name of the database in its events
	store   Store
	guard   *onlyonce.TxGuard[*sql.Tx]
	inbox   *inbox.TxInbox[*sql.Tx]
	retries *inbox.TxInbox[*sql.Tx] // for messages that were given up
	outbox  Outbox
	limiter *httponce.Limiter
	move    func(context.Context) // moves events from the outbox to the consumer until its context ends
	callers caller.Policy

	foreignAt atomic.Int64 // when the log last said that an event of another database arrived, in Unix nanoseconds
}

// Migrate creates the tables of the API in the database of a store, or brings them up to
// date, as New does. It returns the version that they had, 0 if there were none, and the
// one that they have.
func Migrate(ctx context.Context, db *sql.DB) (from, to int64, err error) {
	return schema.Migrate(ctx, db, "orders", migrations)
}

// New returns an API, and creates its tables if they do not exist, unless
// Config.NoMigrate is set. The store keeps its records in db, and events is its outbox.
func New(ctx context.Context, db *sql.DB, store Store, events Outbox, cfg Config) (*API, error) {
	a := &API{cfg: cfg.withDefaults(), db: db, store: store, outbox: events}
	a.callers = caller.Policy{Tokens: cfg.Tokens, AllowAnonymous: cfg.AllowAnonymous, Header: "X-Tenant-ID"}
	a.guard = onlyonce.NewTx(store, onlyonce.Config{
		Keep: a.cfg.Keep, Lease: a.cfg.Lease, KeepFailures: a.cfg.KeepFailures, Observer: serving.Observe(a.cfg.Log, a.cfg.ShowKey, a.cfg.Observer),
		Traceparent: a.cfg.Traceparent,
	})
	a.limiter = httponce.NewLimiter(a.guard.Guard, httponce.Config{})
	a.openInboxes()
	a.move = a.runHere
	if a.cfg.Broker != "" {
		a.move = a.runBroker
	}
	a.Router = serving.NewRouter(a.caller, a.reject, map[string]serving.Methods{
		"/orders":      {"POST": a.owned(a.create), "GET": a.owned(a.list)},
		"/orders/{id}": {"GET": a.owned(a.get)},
	})
	if err := a.open(ctx); err != nil {
		return nil, fmt.Errorf("orders: new: %w", err)
	}
	return a, nil
}

func (a *API) open(ctx context.Context) (err error) {
	if err := CheckBroker(a.cfg.Broker); err != nil {
		return fmt.Errorf("Config.Broker: %w", err)
	}
	if err := schema.Prepare(ctx, a.db, "orders", migrations, a.cfg.NoMigrate); err != nil {
		return err
	}
	if a.engine, err = schema.EngineOf(ctx, a.db); err != nil {
		return err
	}
	a.origin, err = a.readOrigin(ctx)
	return err
}

// Run publishes events and creates shipments from them, until ctx ends.
func (a *API) Run(ctx context.Context) error {
	a.move(ctx)
	return nil
}
