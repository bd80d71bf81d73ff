// Command orders takes orders over HTTP. An order that is sent many times is created once.
package main

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	_ "modernc.org/sqlite" // the driver; any of database/sql's for SQLite, PostgreSQL, MySQL or MariaDB

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

func main() {
	if err := run(); err != nil {
		slog.Error("orders: the program ends", "error", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	db, store, err := open(ctx, "orders.db")
	if err != nil {
		return err
	}
	defer db.Close()
	defer store.Close() // before the database

	// The server: it stops accepting requests first, and then waits for those that run.
	server := &http.Server{Handler: handler(store), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute}
	listener, err := net.Listen("tcp", cmp.Or(os.Getenv("LISTEN"), "127.0.0.1:8090"))
	if err != nil {
		return err
	}
	slog.Info("orders: listening", "address", listener.Addr().String())
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		ending, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		stopped <- server.Shutdown(ending)
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}

// open opens the database: the service's own table, and the records next to it.
func open(ctx context.Context, path string) (*sql.DB, *sqlstore.Store, error) {
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		return nil, nil, err
	}
	if err := sqlstore.Migrate(ctx, db); err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	_, err = db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, account TEXT NOT NULL, item TEXT NOT NULL)`)
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	store, err := sqlstore.Open(ctx, db, sqlstore.Config{}) // deletes expired records in the background
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return db, store, nil
}

// handler returns the service's handler, with its records in the store.
func handler(store *sqlstore.Store) http.Handler {
	// The guard decides about each request with a key: run it, replay its response, or
	// reject it. The observer logs every decision.
	guard := onlyonce.NewTx(store, onlyonce.Config{
		Keep:     24 * time.Hour,
		Observer: onlyonce.SlogObserver(slog.Default(), nil),
	})
	mux := http.NewServeMux()
	mux.Handle("POST /orders", httponce.WrapTx(guard, createOrder, httponce.Config{
		Tenant:   account, // each account's keys are its own
		Required: true,    // reject an order without a key
	}))
	return authenticated(mux)
}

// createOrder writes an order. Its row and its response are committed together; if it
// returns an error, neither is, and the client may send the order again.
func createOrder(w http.ResponseWriter, r *http.Request, tx *sql.Tx) error {
	var order struct {
		ID   int64  `json:"id"`
		Item string `json:"item"`
	}
	if err := json.NewDecoder(r.Body).Decode(&order); err != nil || order.Item == "" {
		httponce.DontStore(r) // the client may correct the body and send it with the same key
		http.Error(w, `send {"item": "NAME"}`, http.StatusBadRequest)
		return nil
	}
	row := tx.QueryRowContext(r.Context(), `INSERT INTO orders (account, item) VALUES (?, ?) RETURNING id`, account(r), order.Item)
	if err := row.Scan(&order.ID); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	return json.NewEncoder(w).Encode(order)
}

// authenticated rejects a request without a valid token. Replace the map with your own
// authentication.
func authenticated(next http.Handler) http.Handler {
	accounts := map[string]string{"Bearer alices-token": "alice", "Bearer bobs-token": "bob"}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, ok := accounts[r.Header.Get("Authorization")]
		if !ok {
			http.Error(w, "send a valid token", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), accountKey{}, name)))
	})
}

type accountKey struct{}

// account returns the authenticated account of a request.
func account(r *http.Request) string {
	name, _ := r.Context().Value(accountKey{}).(string)
	return name
}
