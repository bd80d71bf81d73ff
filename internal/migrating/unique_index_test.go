package migrating_test

import (
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

const ordersTable = `CREATE TABLE orders (
	id INTEGER PRIMARY KEY, account TEXT NOT NULL, item TEXT NOT NULL,
	idempotency_key TEXT, UNIQUE (account, idempotency_key))`

func isDuplicate(err error) bool {
	return err != nil && strings.Contains(err.Error(), "UNIQUE constraint failed")
}

func createOrderByIndex(db *sql.DB) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var id int64
		err := db.QueryRowContext(r.Context(), "INSERT INTO orders (account, idempotency_key, item) VALUES (?, ?, ?) RETURNING id",
			accountOf(r), r.Header.Get("Idempotency-Key"), r.FormValue("item")).Scan(&id)
		switch {
		case isDuplicate(err):
			http.Error(w, "this order exists already", http.StatusConflict)
		case err != nil:
			http.Error(w, "not saved", http.StatusInternalServerError)
		default:
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, "order %d", id)
		}
	}
}

func createOrder(w http.ResponseWriter, r *http.Request, tx *sql.Tx) error {
	var id int64
	err := tx.QueryRowContext(r.Context(), "INSERT INTO orders (account, item) VALUES (?, ?) RETURNING id",
		accountOf(r), r.FormValue("item")).Scan(&id)
	if err != nil {
		return err // rolled back, and a retry runs
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "order %d", id)
	return nil // the row and the response are committed together
}

func orderRoutes(store onlyonce.TxStore[*sql.Tx], create func(http.ResponseWriter, *http.Request, *sql.Tx) error) http.Handler {
	guard := onlyonce.NewTx(store, onlyonce.Config{})
	mux := http.NewServeMux()
	mux.Handle("POST /orders", httponce.WrapTx(guard, create, httponce.Config{Tenant: accountOf, Required: true}))
	return mux
}

func createOrderDuringTheSwitch(w http.ResponseWriter, r *http.Request, tx *sql.Tx) error {
	key := r.Header.Get("Idempotency-Key")
	var id int64
	var item string
	err := tx.QueryRowContext(r.Context(), "SELECT id, item FROM orders WHERE account = ? AND idempotency_key = ?", accountOf(r), key).Scan(&id, &item)
	switch {
	case errors.Is(err, sql.ErrNoRows): // the key is still written, so that the old version rejects it
		err = tx.QueryRowContext(r.Context(), "INSERT INTO orders (account, idempotency_key, item) VALUES (?, ?, ?) RETURNING id",
			accountOf(r), key, r.FormValue("item")).Scan(&id)
	case err == nil && item != r.FormValue("item"):
		httponce.DontStore(r) // the key stays that of the old version's order
		http.Error(w, "the key belongs to another order", http.StatusUnprocessableEntity)
		return nil
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "order %d", id)
	return nil
}

// openOrders opens the database of the orders, with the records next to them.
func openOrders(t *testing.T) (*sql.DB, *sqlstore.Store) {
	t.Helper()
	db := openDB(t, ordersTable)
	if err := sqlstore.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	store, err := sqlstore.Open(t.Context(), db, sqlstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return db, store
}

func TestUniqueIndex_ByHandARepeatGetsAnErrorInsteadOfTheResponse(t *testing.T) {
	db, _ := openOrders(t)
	byHand := createOrderByIndex(db)
	want(t, "the first", send(byHand, "/orders", "k", "item=lamp"), 201, "order 1", false)
	want(t, "its repeat", send(byHand, "/orders", "k", "item=lamp"), 409, "exists already", false)
	want(t, "another order under its key", send(byHand, "/orders", "k", "item=chair"), 409, "exists already", false)
}

func TestUniqueIndex_WithWrapTxARepeatGetsTheResponse(t *testing.T) {
	db, store := openOrders(t)
	h := orderRoutes(store, createOrder)
	want(t, "the first", send(h, "/orders", "k", "item=lamp"), 201, "order 1", false)
	want(t, "its repeat", send(h, "/orders", "k", "item=lamp"), 201, "order 1", true)
	want(t, "another order under its key", send(h, "/orders", "k", "item=chair"), 422, httponce.CodeKeyReused, false)
	if n := count(t, db, "SELECT count(*) FROM orders"); n != 1 {
		t.Errorf("there are %d orders", n)
	}
}

func TestUniqueIndex_DuringTheSwitchAnOrderIsCreatedOnceByBothVersions(t *testing.T) {
	db, store := openOrders(t)
	before, during := createOrderByIndex(db), orderRoutes(store, createOrderDuringTheSwitch)
	want(t, "an order of the old version", send(before, "/orders", "old", "item=lamp"), 201, "order 1", false)
	want(t, "another order under its key", send(during, "/orders", "old", "item=chair"), 422, "the key belongs to another order", false)
	want(t, "its retry at the new one", send(during, "/orders", "old", "item=lamp"), 201, "order 1", false)
	want(t, "the next retry", send(during, "/orders", "old", "item=lamp"), 201, "order 1", true)
	want(t, "an order of the new version", send(during, "/orders", "new", "item=lamp"), 201, "order 2", false)
	want(t, "its retry at the old one", send(before, "/orders", "new", "item=lamp"), 409, "exists already", false)
	if n := count(t, db, "SELECT count(*) FROM orders"); n != 2 {
		t.Errorf("there are %d orders", n)
	}
}
