package sandboxes

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/services/internal/apitest"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// TestMain lets the test binary be a second server process.
func TestMain(m *testing.M) {
	if dir := os.Getenv("SANDBOXES_TEST_SERVER"); dir != "" {
		serveForTest(dir)
		return
	}
	os.Exit(m.Run())
}

// A world is an API with its database.
type world struct {
	t     *testing.T
	api   *API
	db    *sql.DB
	store *sqlstore.Store
	dir   string
	log   *apitest.Log
}

// newWorld opens an API in a new directory; anonymous callers are allowed.
func newWorld(t *testing.T, change ...func(*Config)) *world {
	t.Helper()
	return openWorld(t, t.TempDir(), change...)
}

func openWorld(t *testing.T, dir string, change ...func(*Config)) *world {
	t.Helper()
	db, store, err := apitest.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	log := &apitest.Log{}
	cfg := Config{Dir: filepath.Join(dir, "workspaces"), AllowAnonymous: true, Wait: time.Minute, Log: log.Logger()}
	for _, c := range change {
		c(&cfg)
	}
	api, err := New(t.Context(), db, store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := api.Close(context.Background()); err != nil {
			t.Error(err)
		}
		_ = store.Close()
		_ = db.Close()
	})
	return &world{t: t, api: api, db: db, store: store, dir: dir, log: log}
}

// A reply is the response to a request.
type reply struct {
	Status int
	Header http.Header
	Body   string

	sandbox sandbox
	failure struct {
		Code      string         `json:"code"`
		Message   string         `json:"message"`
		RequestID string         `json:"request_id"`
		Details   map[string]any `json:"details"`
	}
}

// send sends a request; header is names and values by turns.
func (w *world) send(method, path, body string, header ...string) reply {
	w.t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
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
	var err error
	switch {
	case status < 300 && len(body) > 0:
		err = json.Unmarshal(body, &got.sandbox)
	case status >= 300:
		envelope := struct{ Error any }{&got.failure}
		err = json.Unmarshal(body, &envelope)
	}
	if err != nil {
		t.Errorf("the body %q: %v", body, err)
	}
	return got
}

func (w *world) create(body string, header ...string) sandbox {
	w.t.Helper()
	got := w.send("POST", "/v1/sandboxes", body, header...)
	if got.Status != 201 {
		w.t.Fatalf("create responded with %d %s", got.Status, got.Body)
	}
	return got.sandbox
}

func (w *world) get(id string) sandbox {
	w.t.Helper()
	got := w.send("GET", "/v1/sandboxes/"+id, "")
	if got.Status != 200 {
		w.t.Fatalf("get responded with %d %s", got.Status, got.Body)
	}
	return got.sandbox
}

func (w *world) exec(statement string, args ...any) {
	w.t.Helper()
	if _, err := w.db.ExecContext(w.t.Context(), statement, args...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) count(query string, args ...any) (n int) {
	w.t.Helper()
	if err := w.db.QueryRowContext(w.t.Context(), query, args...).Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

// expire lets a sandbox's end be past.
func (w *world) expire(id string) {
	w.t.Helper()
	w.exec("UPDATE sandboxes_sandboxes SET expires_at = unixepoch() - 5 WHERE id = ?", id)
}

func (w *world) handle(id string) (handle string) {
	w.t.Helper()
	err := w.db.QueryRowContext(w.t.Context(), "SELECT coalesce(session_handle, '') FROM sandboxes_sandboxes WHERE id = ?", id).Scan(&handle)
	if err != nil {
		w.t.Fatal(err)
	}
	return handle
}

func (r reply) want(t *testing.T, status int, code string) {
	t.Helper()
	if r.Status != status || r.failure.Code != code {
		t.Errorf("got %d %s, want %d %q", r.Status, r.Body, status, code)
	}
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not after 30 s", what)
		}
	}
}

func same(t *testing.T, a, b reply) {
	t.Helper()
	if a.Status != b.Status || a.Body != b.Body || a.Header.Get("Content-Type") != b.Header.Get("Content-Type") {
		t.Errorf("the responses differ:\n%d %s\n%d %s", a.Status, a.Body, b.Status, b.Body)
	}
}

const key = "Idempotency-Key"

func at(id, verb string) string { return fmt.Sprintf("/v1/sandboxes/%s/%s", id, verb) }
