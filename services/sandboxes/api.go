package sandboxes

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/services/internal/schema"
	"github.com/onlyonce-go/onlyonce/services/internal/serving"
)

//go:embed migrations
var migrations embed.FS

// An API serves /v1/sandboxes and the paths below it.
type API struct {
	*serving.Router
	cfg      Config
	db       *sql.DB
	store    Store
	limiter  *httponce.Limiter
	guard    *onlyonce.TxGuard[*sql.Tx]
	root     *os.Root // of the workspaces
	server   string   // this server's name
	sessions sessions
}

// Migrate creates the tables of the API in a SQLite database, or brings them up to date,
// as New does. It returns the version that they had, 0 if there were none, and the one
// that they have.
func Migrate(ctx context.Context, db *sql.DB) (from, to int64, err error) {
	return schema.Migrate(ctx, db, "sandboxes", migrations)
}

// New returns an API, creates its tables if they do not exist, unless Config.NoMigrate is
// set, and ends the sessions of servers that died. The store keeps its records in db, a
// SQLite database.
func New(ctx context.Context, db *sql.DB, store Store, cfg Config) (*API, error) {
	a := &API{cfg: cfg.withDefaults(), db: db, store: store, sessions: sessions{list: map[string]string{}}}
	a.guard = onlyonce.NewTx(store, onlyonce.Config{
		Keep: a.cfg.Keep, Lease: a.cfg.Lease, Wait: a.cfg.Wait, Observer: serving.Observe(a.cfg.Log, a.cfg.ShowKey, a.cfg.Observer),
		Traceparent: a.cfg.Traceparent,
	})
	a.limiter = httponce.NewLimiter(a.guard.Guard, httponce.Config{})
	a.Router = serving.NewRouter(a.caller, a.reject, a.routes())
	if err := a.open(ctx); err != nil {
		return nil, fmt.Errorf("sandboxes: new: %w", err)
	}
	a.sweep(ctx)
	return a, nil
}

func (a *API) open(ctx context.Context) (err error) {
	if err := schema.Prepare(ctx, a.db, "sandboxes", migrations, a.cfg.NoMigrate); err != nil {
		return err
	}
	if a.server, err = newServerName(); err != nil {
		return err
	}
	dir, err := filepath.Abs(a.cfg.Dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	a.root, err = os.OpenRoot(dir)
	return err
}

const closeSQL = `UPDATE sandboxes_sandboxes SET ` + noSession + `
WHERE session_server = ? AND session_id IS NOT NULL RETURNING ` + columns

// Close ends the sessions that this server started. After Close, none can be started.
func (a *API) Close(ctx context.Context) error {
	a.sessions.close()
	err := a.transact(ctx, func(ctx context.Context, on querier) error {
		_, err := rows(ctx, on, closeSQL, a.server)
		return err
	})
	for id, handle := range a.sessions.all() {
		if handle != "" {
			err = errors.Join(err, a.kill(ctx, id, handle))
		}
	}
	if err = errors.Join(err, a.root.Close()); err != nil {
		return fmt.Errorf("sandboxes: close: %w", err)
	}
	return nil
}

// A handler handles a call and returns the response, or an error that becomes one.
type handler func(*call) (response, error)

func (a *API) routes() map[string]serving.Methods {
	return map[string]serving.Methods{
		"/v1/sandboxes":                 {"POST": a.owned(a.create), "GET": a.owned(a.list)},
		"/v1/sandboxes/{id}":            {"GET": a.owned(a.get), "DELETE": a.owned(a.delete)},
		"/v1/sandboxes/{id}/start":      {"POST": a.owned(a.start)},
		"/v1/sandboxes/{id}/keepalive":  {"POST": a.owned(a.keepalive)},
		"/v1/sandboxes/{id}/extend_ttl": {"POST": a.owned(a.extendTTL)},
		"/v1/sandboxes/{id}/stop":       {"POST": a.owned(a.stop)},
	}
}

// owned returns a handler that passes the calls of known owners to h, and rejects all
// others.
func (a *API) owned(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := newCall(w, r)
		var resp response
		var err error
		if c.owner, err = a.owner(r.Header); err == nil {
			resp, err = h(c)
		}
		a.respond(c, resp, err)
	})
}

// caller returns the owner of a request, or "".
func (a *API) caller(r *http.Request) string {
	owner, _ := a.owner(r.Header)
	return owner
}

// reject responds to a request with an error.
func (a *API) reject(w http.ResponseWriter, r *http.Request, why error) {
	a.respond(newCall(w, r), response{}, why)
}
