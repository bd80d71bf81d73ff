package items

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"net/http"
	"path"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/services/internal/schema"
	"github.com/onlyonce-go/onlyonce/services/internal/serving"
)

//go:embed migrations
var migrations embed.FS

// An API answers /api/v1/items and what is below it.
type API struct {
	cfg   Config
	db    *sql.DB
	guard *onlyonce.TxGuard[*sql.Tx]
	mux   *http.ServeMux

	origins http.CrossOriginProtection
}

// New makes the API's tables if they are not there. The store keeps its records
// in db, a SQLite database.
func New(ctx context.Context, db *sql.DB, store Store, cfg Config) (*API, error) {
	a := &API{cfg: cfg.withDefaults(), db: db}
	a.guard = onlyonce.NewTx(store, onlyonce.Config{Keep: a.cfg.Keep, Lease: a.cfg.Lease, Observer: a.observe()})
	if err := schema.Migrate(ctx, db, "items", migrations); err != nil {
		return nil, fmt.Errorf("items: new: %w", err)
	}
	a.mux = a.routes(store)
	return a, nil
}

func (a *API) routes(store Store) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("POST /api/v1/items", a.protected(store))
	mux.HandleFunc("GET /api/v1/items", a.list)
	mux.HandleFunc("GET /api/v1/items/{id}", a.get)
	mux.Handle("/api/v1/items", refuseMethod("GET, HEAD, POST"))
	mux.Handle("/api/v1/items/{id}", refuseMethod("GET, HEAD"))
	mux.HandleFunc("/", refusePath)
	return mux
}

func refuseMethod(allowed string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Allow", allowed)
		write(w, http.StatusMethodNotAllowed, otherMethod)
	})
}

func refusePath(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusNotFound, notFound) }

// ServeHTTP answers a request. A path that is not in its shortest form is not
// found, rather than redirected. A web page of another origin can't use the
// browser of someone near the server to write.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		if err := serving.Recovered(recover()); err != nil {
			a.fail(w, r, err)
		}
	}()
	switch {
	case a.origins.Check(r) != nil:
		write(w, http.StatusForbidden, crossOrigin)
	case path.Clean(r.URL.Path) != r.URL.Path:
		refusePath(w, r)
	default:
		a.mux.ServeHTTP(w, r)
	}
}

// Forbid answers 403 in the API's form, for what stands before it; why is shown to
// the client.
func (a *API) Forbid(w http.ResponseWriter, _ *http.Request, why string) {
	write(w, http.StatusForbidden, problem{Detail: why, Code: crossOrigin.Code})
}

// fail answers a request that could not be served. The client is not told why.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() == nil {
		a.cfg.Log.ErrorContext(r.Context(), "items: request failed", "path", r.URL.Path, "error", err)
	}
	write(w, http.StatusInternalServerError, internal)
}

// Run deletes what has expired in the store every Config.PurgeEvery, until ctx
// ends.
func (a *API) Run(ctx context.Context) error {
	if a.cfg.PurgeEvery < 0 {
		<-ctx.Done()
		return nil
	}
	a.guard.PurgeEvery(ctx, a.cfg.PurgeEvery)
	return nil
}

// observe tells the log and the caller's Observer. In the log, a refusal has the
// code that the client got.
func (a *API) observe() onlyonce.Observer {
	log := onlyonce.SlogObserver(a.cfg.Log, a.cfg.ShowKey)
	refusals := map[onlyonce.Outcome]onlyonce.Observer{
		onlyonce.OutcomeMismatch: onlyonce.SlogObserver(a.cfg.Log.With("error_code", codeConflict), a.cfg.ShowKey),
		onlyonce.OutcomeInFlight: onlyonce.SlogObserver(a.cfg.Log.With("error_code", codeInProgress), a.cfg.ShowKey),
	}
	return func(ctx context.Context, e onlyonce.Event) {
		if refusal, ok := refusals[e.Outcome]; ok {
			refusal(ctx, e)
		} else {
			log(ctx, e)
		}
		if a.cfg.Observer != nil {
			a.cfg.Observer(ctx, e)
		}
	}
}
