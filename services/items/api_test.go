package items

import (
	"bytes"
	"context"
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

// A world is an API with its database.
type world struct {
	t     *testing.T
	api   *API
	db    *sql.DB
	store *sqlstore.Store
	log   *apitest.Log
}

func newWorld(t *testing.T, cfg Config) *world {
	t.Helper()
	return openWorld(t, t.TempDir(), cfg)
}

func openWorld(t *testing.T, dir string, cfg Config) *world {
	t.Helper()
	db, store, err := apitest.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = store.Close()
		_ = db.Close()
	})
	w := &world{t: t, db: db, store: store, log: &apitest.Log{}}
	return w.with(store, cfg)
}

// with returns a world with another API on the same database.
func (w *world) with(store onlyonce.TxStore[*sql.Tx], cfg Config) *world {
	w.t.Helper()
	cfg.Log = w.log.Logger()
	api, err := New(w.t.Context(), w.db, store, cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	other := *w
	other.api = api
	return &other
}

// A reply is the response to a request.
type reply struct {
	Status int
	Header http.Header
	Body   string

	item    item
	problem problem
}

// send sends a request; header is names and values by turns.
func (w *world) send(method, path, body string, header ...string) reply {
	w.t.Helper()
	return w.sendIn(context.Background(), method, path, body, header...)
}

func (w *world) sendIn(ctx context.Context, method, path, body string, header ...string) reply {
	w.t.Helper()
	r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	rec := httptest.NewRecorder()
	w.api.ServeHTTP(rec, r)
	return newReply(w.t, rec.Code, rec.Header(), rec.Body.Bytes())
}

func newReply(t *testing.T, status int, header http.Header, body []byte) reply {
	t.Helper()
	got := reply{Status: status, Header: header, Body: string(body)}
	into := any(&got.item)
	if status >= 300 {
		into = &got.problem
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	if status >= 300 {
		dec.DisallowUnknownFields()
	}
	if err := dec.Decode(into); err != nil {
		t.Errorf("the body %q: %v", body, err)
	}
	if header.Get("Content-Type") != "application/json" {
		t.Errorf("content type %q", header.Get("Content-Type"))
	}
	return got
}

const (
	key  = "Idempotency-Key"
	base = "/api/v1/items"
	mug  = `{"sku":"MUG-1","title":"Mug","status":"active"}`
)

func (w *world) post(body string, header ...string) reply {
	w.t.Helper()
	return w.send("POST", base, body, header...)
}

func (w *world) exec(statement string, args ...any) {
	w.t.Helper()
	if _, err := w.db.ExecContext(w.t.Context(), statement, args...); err != nil {
		w.t.Fatal(err)
	}
}

// age lets time pass for the records.
func (w *world) age(by time.Duration) {
	w.t.Helper()
	w.exec("UPDATE onlyonce_records SET created_at = created_at - ?1, settled_at = settled_at - ?1, expires_at = expires_at - ?1", by.Microseconds())
}

func (w *world) count(table string) (n int) {
	w.t.Helper()
	if err := w.db.QueryRowContext(w.t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

func (r reply) want(t *testing.T, status int, code string) {
	t.Helper()
	if r.Status != status || r.problem.Code != code {
		t.Errorf("got %d %s, want %d %q", r.Status, r.Body, status, code)
	}
}

// same compares two responses byte for byte: status, body and content type.
func same(t *testing.T, a, b reply) {
	t.Helper()
	if a.Status != b.Status || a.Body != b.Body || a.Header.Get("Content-Type") != b.Header.Get("Content-Type") {
		t.Errorf("the responses differ:\n%d %s\n%d %s", a.Status, a.Body, b.Status, b.Body)
	}
}
