// Package messages_test runs the code of docs/messages.md: consumers of queues, and jobs that a
// command starts.
package messages_test

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/internal/consumertest"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// accountOf returns the name of the authenticated caller.
func accountOf(r *http.Request) string { return r.Header.Get("X-Account") }

// send sends a POST of the account acme to a handler, and returns the status and the body of the response.
func send(h http.Handler, path, key, body string) (status int, text string) {
	r := httptest.NewRequest("POST", path, strings.NewReader(body))
	r.Header.Set("X-Account", "acme")
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// readBody reads the body of a request, or responds with 400.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, "the body is incomplete", http.StatusBadRequest)
	}
	return body, err == nil
}

var errAway = errors.New("the carrier is away")

// A carrier counts what it ships, by key.
type carrier struct {
	mu      sync.Mutex
	shipped map[string]int
	calls   int
	fails   int // how many calls fail before one succeeds
}

func (c *carrier) ship(_ context.Context, key, what string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls++; c.calls <= c.fails {
		return errAway
	}
	if c.shipped == nil {
		c.shipped = map[string]int{}
	}
	c.shipped[key+" "+what]++
	return nil
}

// counts returns how many different things were shipped, and how many in all.
func (c *carrier) counts() (different, all int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.shipped {
		all += n
	}
	return len(c.shipped), all
}

// wantShipped fails unless so many things were shipped, each once.
func (c *carrier) wantShipped(t *testing.T, n int) {
	t.Helper()
	if different, all := c.counts(); different != n || all != n {
		t.Errorf("%d things were shipped, in %d parcels, want %d", different, all, n)
	}
}

// openShop opens a store in SQLite, whose database has a table of shipments.
func openShop(t *testing.T) (*sqlstore.Store, *sql.DB) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "shop.db"))
	if err == nil {
		t.Cleanup(func() { _ = db.Close() })
		err = sqlstore.Migrate(t.Context(), db)
	}
	if err == nil {
		_, err = db.ExecContext(t.Context(), "CREATE TABLE shipments (item TEXT)")
	}
	if err != nil {
		t.Fatal(err)
	}
	store, err := sqlstore.Open(t.Context(), db, sqlstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store, db
}

func insertShipment(ctx context.Context, tx *sql.Tx, item []byte) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO shipments (item) VALUES (?)", string(item))
	return err
}

// shipments returns the items that were shipped, in order.
func shipments(t *testing.T, db *sql.DB) string {
	t.Helper()
	var all sql.NullString
	if err := db.QueryRowContext(t.Context(), "SELECT group_concat(item, ', ') FROM (SELECT item FROM shipments ORDER BY rowid)").Scan(&all); err != nil {
		t.Fatal(err)
	}
	return all.String
}

func newTxInbox(store *sqlstore.Store, redelivery time.Duration, poison func(context.Context, inbox.Message, error) error) *inbox.TxInbox[*sql.Tx] {
	return inbox.NewTx(store, inbox.Config{Consumer: "shipping", Redelivery: redelivery, Poison: poison})
}

// run runs a consumer until stop is called, or until the end of the test. Then it may return an error.
func run(t *testing.T, consume func(context.Context) error) (stop func()) {
	return consumertest.Run(t, func(ctx context.Context) error {
		if err := consume(ctx); ctx.Err() == nil {
			return err
		}
		return nil
	})
}
