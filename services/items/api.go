package items

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"net/http"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/services/internal/schema"
	"github.com/onlyonce-go/onlyonce/services/internal/serving"
)

//go:embed migrations
var migrations embed.FS

// An API serves /api/v1/items and the paths below it.
type API struct {
	*serving.Router
	cfg   Config
	db    *sql.DB
	guard *onlyonce.TxGuard[*sql.Tx]
}

// Migrate creates the tables of the API in a SQLite database, or brings them up to date,
// as New does. It returns the version that they had, 0 if there were none, and the one
// that they have.
func Migrate(ctx context.Context, db *sql.DB) (from, to int64, err error) {
	return schema.Migrate(ctx, db, "items", migrations)
}

// New returns an API, and creates its tables if they do not exist, unless
// Config.NoMigrate is set. The store keeps its records in db, a SQLite database.
func New(ctx context.Context, db *sql.DB, store onlyonce.TxStore[*sql.Tx], cfg Config) (*API, error) {
	a := &API{cfg: cfg.withDefaults(), db: db}
	a.guard = onlyonce.NewTx(store, onlyonce.Config{Keep: a.cfg.Keep, Lease: a.cfg.Lease, Observer: a.observe(), Traceparent: a.cfg.Traceparent})
	if err := schema.Prepare(ctx, db, "items", migrations, cfg.NoMigrate); err != nil {
		return nil, fmt.Errorf("items: new: %w", err)
	}
	a.Router = serving.NewRouter(a.cfg.Tenant, a.reject, map[string]serving.Methods{
		"/api/v1/items":      {"POST": a.protected(), "GET": http.HandlerFunc(a.list)},
		"/api/v1/items/{id}": {"GET": http.HandlerFunc(a.get)},
	})
	return a, nil
}

// observe returns an Observer that calls the log and the caller's Observer. In the
// log, a rejection has the code that the client got.
func (a *API) observe() onlyonce.Observer {
	log := onlyonce.SlogObserver(a.cfg.Log, a.cfg.ShowKey)
	rejections := map[onlyonce.Outcome]onlyonce.Observer{
		onlyonce.OutcomeMismatch: onlyonce.SlogObserver(a.cfg.Log.With("error_code", codeConflict), a.cfg.ShowKey),
		onlyonce.OutcomeInFlight: onlyonce.SlogObserver(a.cfg.Log.With("error_code", codeInProgress), a.cfg.ShowKey),
	}
	return func(ctx context.Context, e onlyonce.Event) {
		if rejection, ok := rejections[e.Outcome]; ok {
			rejection(ctx, e)
		} else {
			log(ctx, e)
		}
		if a.cfg.Observer != nil {
			a.cfg.Observer(ctx, e)
		}
	}
}
