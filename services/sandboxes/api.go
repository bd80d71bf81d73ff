package sandboxes

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/onlyonce-go/onlyonce"
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
	guard    *onlyonce.TxGuard[*sql.Tx]
	root     *os.Root // of the workspaces
	server   string   // this server's name
	sessions sessions
}

// New returns an API, creates its tables if they do not exist, and ends the sessions
// of servers that died. The store keeps its records in db, a SQLite database.
func New(ctx context.Context, db *sql.DB, store Store, cfg Config) (*API, error) {
	a := &API{cfg: cfg.withDefaults(), db: db, store: store, sessions: sessions{list: map[string]string{}}}
	a.guard = onlyonce.NewTx(store, onlyonce.Config{
		Keep: a.cfg.Keep, Lease: a.cfg.Lease, Wait: a.cfg.Wait, Observer: serving.Observe(a.cfg.Log, a.cfg.ShowKey, a.cfg.Observer),
	})
	a.Router = serving.NewRouter(a.caller, a.reject, a.routes())
	if err := a.open(ctx); err != nil {
		return nil, fmt.Errorf("sandboxes: new: %w", err)
	}
	a.sweep(ctx)
	return a, nil
}

func (a *API) open(ctx context.Context) (err error) {
	if err := schema.Migrate(ctx, a.db, "sandboxes", migrations); err != nil {
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
	err := a.alone(ctx, func(ctx context.Context, on querier) error {
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
