package orders

import (
	"database/sql"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/services/internal/apitest"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

const key = "Idempotency-Key"

// two is an order of two things.
const two = `{"items":[{"product_id":"prod-1","quantity":2,"unit_price":"19.90"}],"external_ref":"PO-7"}`

// A world is an API with its database.
type world struct {
	t     *testing.T
	api   *API
	db    *sql.DB
	store *sqlstore.Store
	on    *apitest.Database
	log   *apitest.Log
}

// eachEngine runs a test in a new world on each engine; anonymous callers are
// allowed in it.
func eachEngine(t *testing.T, test func(w *world), change ...func(*Config)) {
	apitest.OnEngines(t, func(t *testing.T, on *apitest.Database) { test(openWorld(t, on, change...)) })
}

// newWorld returns a world on SQLite, for tests that are the same on all engines.
func newWorld(t *testing.T, change ...func(*Config)) *world {
	t.Helper()
	return openWorld(t, apitest.NewDatabase(t, "sqlite"), change...)
}

func openWorld(t *testing.T, on *apitest.Database, change ...func(*Config)) *world {
	t.Helper()
	db, store := openStore(t, on)
	w := &world{t: t, db: db, store: store, on: on, log: &apitest.Log{}}
	w.api = w.open(store, change...)
	return w
}

func openStore(t *testing.T, on *apitest.Database) (*sql.DB, *sqlstore.Store) {
	t.Helper()
	db, store, err := on.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = store.Close()
		_ = db.Close()
	})
	return db, store
}

// open makes an API on a store that is w's, or has it.
func (w *world) open(store Store, change ...func(*Config)) *API {
	w.t.Helper()
	cfg := Config{AllowAnonymous: true, MaxWait: time.Minute, Log: w.log.Logger()}
	for _, c := range change {
		c(&cfg)
	}
	api, err := New(w.t.Context(), w.db, store, w.store.Outbox(), cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return api
}

// A reply is the response to a request.
type reply struct {
	Status int
	Header http.Header
	Body   string

	order   order
	problem struct {
		Type, Title, Detail, Code string
		Status                    int
		Retryable                 bool
	}
}

// send sends a request; header is names and values by turns.
func (w *world) send(method, path, body string, header ...string) reply {
	w.t.Helper()
	return send(w.t, w.api, method, path, body, header...)
}

func send(t *testing.T, to http.Handler, method, path, body string, header ...string) reply {
	t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	rec := httptest.NewRecorder()
	to.ServeHTTP(rec, r)
	got := reply{Status: rec.Code, Header: rec.Header(), Body: rec.Body.String()}
	into := any(&got.problem)
	if got.Status < 300 {
		into = &got.order
	}
	if err := json.Unmarshal(rec.Body.Bytes(), into); err != nil {
		t.Errorf("the body %q: %v", got.Body, err)
	}
	return got
}

// place makes an order.
func (w *world) place(k string, header ...string) reply {
	w.t.Helper()
	got := w.send("POST", "/orders", two, append(header, key, k)...)
	if got.Status != 201 {
		w.t.Fatalf("create responded with %d %s", got.Status, got.Body)
	}
	return got
}

func (w *world) exec(statement string, args ...any) {
	w.t.Helper()
	if _, err := w.db.ExecContext(w.t.Context(), w.api.engine.Bind(statement), args...); err != nil {
		w.t.Fatal(err)
	}
}

// lapse ends the lease of a command, as if time had passed.
func (w *world) lapse(id onlyonce.ID) error {
	hash := id.Hash()
	_, err := w.db.ExecContext(w.t.Context(), w.api.engine.Bind("UPDATE onlyonce_records SET lease_until = 0 WHERE id = ?"), hash[:])
	return err
}

// free ends the leases of a dead relay's messages.
func (w *world) free() error {
	_, err := w.db.ExecContext(w.t.Context(), "UPDATE onlyonce_outbox SET due_at = 0 WHERE state = 'held'")
	return err
}

func (w *world) count(query string, args ...any) (n int) {
	w.t.Helper()
	if err := w.db.QueryRowContext(w.t.Context(), w.api.engine.Bind(query), args...).Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

func (w *world) orders() int { w.t.Helper(); return w.count("SELECT count(*) FROM orders_orders") }

func (r reply) want(t *testing.T, status int, code string) {
	t.Helper()
	if r.Status != status || r.problem.Code != code || r.problem.Status != status {
		t.Errorf("got %d %s, want %d %q", r.Status, r.Body, status, code)
	}
}

func (r reply) replayed() bool { return r.Header.Get("Idempotency-Replayed") == "true" }

// same checks that b is the replay of a.
func same(t *testing.T, a, b reply) {
	t.Helper()
	if a.Status != b.Status || a.Body != b.Body || a.Header.Get("Content-Type") != b.Header.Get("Content-Type") || a.Header.Get("Location") != b.Header.Get("Location") {
		t.Errorf("the responses differ:\n%d %s %v\n%d %s %v", a.Status, a.Body, a.Header, b.Status, b.Body, b.Header)
	}
	if a.replayed() || !b.replayed() {
		t.Errorf("replayed: %v, then %v", a.replayed(), b.replayed())
	}
}

// patience bounds every wait for a condition. It is longer than redelivery, for
// which a broker that was killed may wait, twice over.
const patience = 2 * time.Minute

// eventually waits for a condition.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not after %v", what, patience)
		}
	}
}
