// Package migrating_test runs the code of docs/migrating.md: what people write by hand, the same
// with Onlyonce, and what keeps a command from running twice while both are in use.
package migrating_test

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
	"sync/atomic"
	"testing"

	"github.com/onlyonce-go/onlyonce/internal/redisserver"
	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite"
)

// accountOf returns the name of the authenticated caller.
func accountOf(r *http.Request) string { return r.Header.Get("X-Account") }

// A reply is a client's response.
type reply struct {
	status   int
	body     string
	replayed bool
}

// newRequest returns a POST of the account acme.
func newRequest(path, key, body string) *http.Request {
	r := httptest.NewRequest("POST", path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("X-Account", "acme")
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("X-Idempotency-Key", key)
	return r
}

// send sends a POST to a handler.
func send(h http.Handler, path, key, body string) reply {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, newRequest(path, key, body))
	return reply{w.Code, w.Body.String(), w.Header().Get("Idempotency-Replayed") == "true"}
}

// want fails unless a reply is as it should be.
func want(t *testing.T, what string, got reply, status int, body string, replayed bool) {
	t.Helper()
	if got.status != status || !strings.Contains(got.body, body) || got.replayed != replayed {
		t.Errorf("%s: got %+v, want %d, %q, replayed %v", what, got, status, body, replayed)
	}
}

// A bank counts its charges, and can fail after it has made one.
type bank struct {
	charges atomic.Int32
	fails   error
}

func (b *bank) charge(_ context.Context, request []byte) (receipt string, err error) {
	return fmt.Sprintf("receipt %d for %s", b.charges.Add(1), request), b.fails
}

func (b *bank) chargeKey(ctx context.Context, key string) (receipt string, err error) {
	return b.charge(ctx, []byte(key))
}

func (b *bank) wantCharges(t *testing.T, n int32) {
	t.Helper()
	if got := b.charges.Load(); got != n {
		t.Errorf("the bank made %d charges, want %d", got, n)
	}
}

var errNoAnswer = errors.New("the bank did not answer")

// openDB opens a database with a table.
func openDB(t *testing.T, table string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "shop.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if _, err := db.ExecContext(t.Context(), table); err != nil {
		t.Fatal(err)
	}
	return db
}

// count returns a number that a query selects.
func count(t *testing.T, db *sql.DB, query string) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// newRedis starts a Redis server, and returns a client of it.
func newRedis(t *testing.T) *redis.Client {
	t.Helper()
	server, err := redisserver.Start()
	redisserver.Require(t, err)
	t.Cleanup(func() { _ = server.Close() })
	client := redis.NewClient(&redis.Options{Addr: server.Address()})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// readBody reads the body of a request, or responds with 400.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, "the body is incomplete", http.StatusBadRequest)
	}
	return body, err == nil
}
