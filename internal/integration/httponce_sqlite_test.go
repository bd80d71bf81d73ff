package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

var single = httponce.Config{Tenant: httponce.SingleTenant}

// An orderBook is a table of orders beside the records.
type orderBook struct {
	*sqlstore.Store
	db    *sql.DB
	guard *onlyonce.TxGuard[*sql.Tx]
}

func newOrderBook(t *testing.T, cfg onlyonce.Config) *orderBook {
	s, db := newSQLite(t)
	if _, err := db.Exec("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT NOT NULL UNIQUE) STRICT"); err != nil {
		t.Fatal(err)
	}
	return &orderBook{Store: s, db: db, guard: onlyonce.NewTx(s, cfg)}
}

// insert inserts an order from r's body.
func (b *orderBook) insert(ctx context.Context, w http.ResponseWriter, item string, tx *sql.Tx) error {
	res, err := tx.ExecContext(ctx, "INSERT INTO orders (item) VALUES (?)", item)
	if err != nil {
		return err
	}
	id, err := res.LastInsertId()
	w.Header().Set("Location", fmt.Sprintf("/orders/%d", id))
	w.WriteHeader(http.StatusCreated)
	return errors.Join(err, second(fmt.Fprintf(w, "order %d: %s", id, item)))
}

func second(_ int, err error) error { return err }

func (b *orderBook) create(w http.ResponseWriter, r *http.Request, tx *sql.Tx) error {
	item, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	return b.insert(r.Context(), w, string(item), tx)
}

func (b *orderBook) count(t *testing.T) (n int) {
	t.Helper()
	if err := b.db.QueryRow("SELECT count(*) FROM orders").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func sendOrder(h http.Handler, key, item string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "/orders", strings.NewReader(item))
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func wantOrder(t *testing.T, w *httptest.ResponseRecorder, status int, body string) {
	t.Helper()
	if w.Code != status || body != "" && w.Body.String() != body {
		t.Fatalf("response %d %q, want %d %q", w.Code, w.Body, status, body)
	}
}

func TestWrapTx_SQLiteCommitsAHandlersRowsWithItsResponse(t *testing.T) {
	b := newOrderBook(t, onlyonce.Config{})
	h := httponce.WrapTx(b.guard, b.create, single)
	for _, replayed := range []string{"", "true"} {
		w := sendOrder(h, "k", "tea")
		wantOrder(t, w, 201, "order 1: tea")
		if head := w.Header(); head.Get("Idempotency-Replayed") != replayed || head.Get("Location") != "/orders/1" || head.Get("Idempotency-Expires") == "" {
			t.Errorf("header %v", head)
		}
	}
	wantOrder(t, sendOrder(h, "k", "coffee"), 422, "")
	wantOrder(t, sendOrder(h, "", "coffee"), 201, "order 2: coffee")
	wantOrder(t, sendOrder(h, "", "tea"), 500, "") // UNIQUE
	wantOrder(t, sendOrder(h, "k2", "tea"), 500, "")
	wantOrder(t, sendOrder(h, "k2", "tea"), 500, "")
	if n := b.count(t); n != 2 {
		t.Fatalf("%d orders", n)
	}
	rec, err := b.Lookup(t.Context(), onlyonce.ID{Tenant: "single", Operation: "POST /orders", Key: "k2"})
	if err != nil || rec.State != onlyonce.StateFailed || rec.Attempt != 2 || !strings.Contains(rec.Error, "UNIQUE") {
		t.Fatalf("record %+v, %v", rec, err)
	}
}

func TestWrapTx_SQLiteRollsBackTheRowsOfAHandlerThatFails(t *testing.T) {
	for name, c := range map[string]struct {
		end    func(http.ResponseWriter, *http.Request) error
		status int
		state  onlyonce.State // "": no record
	}{
		"an error": {func(http.ResponseWriter, *http.Request) error { return errors.New("no") }, 500, onlyonce.StateFailed},
		"503":      {func(w http.ResponseWriter, _ *http.Request) error { w.WriteHeader(503); return nil }, 503, onlyonce.StateFailed},
		"401":      {func(w http.ResponseWriter, _ *http.Request) error { w.WriteHeader(401); return nil }, 401, ""},
		"Unknown":  {func(_ http.ResponseWriter, r *http.Request) error { httponce.Unknown(r, nil); return nil }, 200, onlyonce.StateUnknown},
		"DontStore": {func(w http.ResponseWriter, r *http.Request) error {
			httponce.DontStore(r)
			w.WriteHeader(409)
			return nil
		}, 409, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newOrderBook(t, onlyonce.Config{})
			h := httponce.WrapTx(b.guard, func(w http.ResponseWriter, r *http.Request, tx *sql.Tx) error {
				if err := b.insert(r.Context(), httptest.NewRecorder(), "tea", tx); err != nil {
					return err
				}
				return c.end(w, r)
			}, single)
			wantOrder(t, sendOrder(h, "k", "tea"), c.status, "")
			rec, err := b.Lookup(t.Context(), onlyonce.ID{Tenant: "single", Operation: "POST /orders", Key: "k"})
			if b.count(t) != 0 || rec.State != c.state || (err != nil) != (c.state == "") {
				t.Fatalf("%d orders, record %+v, %v", b.count(t), rec, err)
			}
		})
	}
}

func TestWrapTx_SQLiteForgetsWhatAHandlerDoesNotWantStored(t *testing.T) {
	b := newOrderBook(t, onlyonce.Config{})
	h := httponce.WrapTx(b.guard, func(w http.ResponseWriter, r *http.Request, tx *sql.Tx) error {
		httponce.DontStore(r)
		return b.create(w, r, tx)
	}, single)
	wantOrder(t, sendOrder(h, "k", "tea"), 201, "order 1: tea")
	wantOrder(t, sendOrder(h, "k", "coffee"), 201, "order 2: coffee")
}

func TestWrapTx_SQLiteRunsOneOfManyParallelRequests(t *testing.T) {
	b := newOrderBook(t, onlyonce.Config{Wait: time.Minute})
	h := httponce.WrapTx(b.guard, b.create, single)
	var all sync.WaitGroup
	for key := range 8 {
		item := fmt.Sprint("item ", key)
		for range 16 {
			all.Go(func() {
				if w := sendOrder(h, fmt.Sprint(key), item); w.Code != 201 || !strings.HasSuffix(w.Body.String(), ": "+item) {
					t.Errorf("response %d %s", w.Code, w.Body)
				}
			})
		}
	}
	all.Wait()
	if n := b.count(t); n != 8 {
		t.Fatalf("%d orders", n)
	}
}

func TestWrapTx_SQLiteReplaysAfterARestart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "records.db")
	handler := func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["X-Many"] = []string{"b", "a", "b"}
		w.WriteHeader(201)
		for i := range 256 {
			w.Write([]byte{byte(i)})
		}
	}
	var answers []*httptest.ResponseRecorder
	for range 2 {
		s, _ := openSQLite(t, file)
		h := httponce.Wrap(onlyonce.New(s, onlyonce.Config{}), http.HandlerFunc(handler), single)
		answers = append(answers, sendOrder(h, "k", "tea"))
	}
	first, again := answers[0], answers[1]
	if again.Header().Get("Idempotency-Replayed") != "true" || again.Code != 201 || again.Body.String() != first.Body.String() ||
		fmt.Sprint(again.Header()["X-Many"]) != "[b a b]" || again.Header().Get("Content-Type") != first.Header().Get("Content-Type") {
		t.Fatalf("%d %q %v, after %d %q %v", again.Code, again.Body, again.Header(), first.Code, first.Body, first.Header())
	}
}

func TestWrapTx_SQLiteCommitsTheRestOfAHandlerWithItsResponse(t *testing.T) {
	b := newOrderBook(t, onlyonce.Config{})
	var calls atomic.Int32
	h := httponce.Wrap(b.guard.Guard, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		item, _ := io.ReadAll(r.Body)
		calls.Add(1) // to another service
		err := httponce.InTx(r, b.guard, func(tx *sql.Tx) error { return b.insert(r.Context(), w, string(item), tx) })
		if err != nil {
			http.Error(w, "sold out", 409)
		}
	}), single)
	wantOrder(t, sendOrder(h, "k", "tea"), 201, "order 1: tea")
	wantOrder(t, sendOrder(h, "k", "tea"), 201, "order 1: tea")
	wantOrder(t, sendOrder(h, "k2", "tea"), 409, "sold out\n") // UNIQUE
	wantOrder(t, sendOrder(h, "k2", "tea"), 409, "sold out\n")
	wantOrder(t, sendOrder(h, "", "coffee"), 201, "order 2: coffee")
	if n := b.count(t); n != 2 || calls.Load() != 3 {
		t.Fatalf("%d orders, %d calls", n, calls.Load())
	}
}

func TestWrapTx_SQLiteRollsBackTheRestOfAHandlerThatWasTakenOver(t *testing.T) {
	b := newOrderBook(t, onlyonce.Config{Lease: time.Minute})
	h := httponce.Wrap(b.guard.Guard, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := b.db.Exec("UPDATE onlyonce_records SET lease_until = 0"); err != nil { // as if a minute had passed
			t.Error(err)
		}
		rec := onlyonce.Current(r.Context()).Record()
		other := onlyonce.Claim{ID: rec.ID, Owner: "another attempt.", SkipFingerprint: true, Lease: time.Minute, TakeUnknown: true}
		if taken, err := b.Claim(t.Context(), other); err != nil || taken.Owner != other.Owner {
			t.Errorf("take over: %+v, %v", taken, err)
		}
		err := httponce.InTx(r, b.guard, func(tx *sql.Tx) error { return b.insert(r.Context(), w, "tea", tx) })
		if !errors.Is(err, onlyonce.ErrLost) {
			t.Errorf("InTx: %v", err)
		}
	}), single)
	w := sendOrder(h, "k", "tea")
	wantOrder(t, w, 409, "")
	if n := b.count(t); n != 0 || w.Header().Get("Location") != "" {
		t.Fatalf("%d orders, header %v", n, w.Header())
	}
}

func TestWrapTx_SQLitePanicsLeaveNothing(t *testing.T) {
	b := newOrderBook(t, onlyonce.Config{})
	h := httponce.WrapTx(b.guard, func(w http.ResponseWriter, r *http.Request, tx *sql.Tx) error {
		err := b.create(w, r, tx)
		panic(fmt.Sprint("after ", err))
	}, single)
	for range 2 {
		func() {
			defer func() {
				if p := recover(); p != "after <nil>" {
					t.Errorf("panic %v", p)
				}
			}()
			sendOrder(h, "k", "tea")
		}()
	}
	if n := b.count(t); n != 0 {
		t.Fatalf("%d orders", n)
	}
	wantOrder(t, sendOrder(httponce.WrapTx(b.guard, b.create, single), "k", "tea"), 201, "order 1: tea")
}
