package migrating_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

const keysTable = `CREATE TABLE idempotency_keys (
	account TEXT NOT NULL, idempotency_key TEXT NOT NULL, request_hash TEXT NOT NULL,
	created_at INTEGER NOT NULL, locked_at INTEGER, response_code INTEGER, response_body TEXT,
	PRIMARY KEY (account, idempotency_key));
CREATE TABLE payments (id INTEGER PRIMARY KEY, account TEXT NOT NULL, receipt TEXT NOT NULL);`

// A keyRow is a row of the table of keys.
type keyRow struct {
	hash   string
	locked sql.NullInt64
	code   sql.NullInt64
	body   sql.NullString
}

func payByTable(db *sql.DB, charge func(ctx context.Context, key string) (string, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, ok := readBody(w, r)
		if !ok {
			return
		}
		ctx, account, key, now := r.Context(), accountOf(r), r.Header.Get("Idempotency-Key"), time.Now().Unix()
		sum := sha256.Sum256(body)
		hash := hex.EncodeToString(sum[:])
		result, err := db.ExecContext(ctx, `INSERT INTO idempotency_keys (account, idempotency_key, request_hash, created_at, locked_at)
			VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`, account, key, hash, now, now)
		if err != nil {
			http.Error(w, "try again later", http.StatusServiceUnavailable)
			return
		}
		if n, _ := result.RowsAffected(); n == 0 {
			var row keyRow
			err := db.QueryRowContext(ctx, `SELECT request_hash, locked_at, response_code, response_body FROM idempotency_keys
				WHERE account = ? AND idempotency_key = ?`, account, key).Scan(&row.hash, &row.locked, &row.code, &row.body)
			switch {
			case err != nil:
				http.Error(w, "try again later", http.StatusServiceUnavailable)
				return
			case row.hash != hash:
				http.Error(w, "the key belongs to another request", http.StatusUnprocessableEntity)
				return
			case row.code.Valid:
				w.WriteHeader(int(row.code.Int64))
				fmt.Fprint(w, row.body.String)
				return
			case row.locked.Int64 > now-90:
				http.Error(w, "the request is in progress", http.StatusConflict)
				return
			} // otherwise, the lock is old: try again
			_, err = db.ExecContext(ctx, "UPDATE idempotency_keys SET locked_at = ? WHERE account = ? AND idempotency_key = ?", now, account, key)
			if err != nil {
				http.Error(w, "try again later", http.StatusServiceUnavailable)
				return
			}
		}
		receipt, err := charge(ctx, key)
		if err != nil {
			http.Error(w, "the charge failed", http.StatusBadGateway)
			return
		}
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			http.Error(w, "not saved", http.StatusInternalServerError)
			return
		}
		defer tx.Rollback()
		_, err = tx.ExecContext(ctx, "INSERT INTO payments (account, receipt) VALUES (?, ?)", account, receipt)
		if err == nil {
			_, err = tx.ExecContext(ctx, `UPDATE idempotency_keys SET response_code = 201, response_body = ?, locked_at = NULL
				WHERE account = ? AND idempotency_key = ?`, receipt, account, key)
		}
		if err = errors.Join(err, tx.Commit()); err != nil {
			http.Error(w, "not saved", http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, receipt)
	}
}

func pay(guard *onlyonce.TxGuard[*sql.Tx], charge func(ctx context.Context, key string) (string, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		receipt, err := charge(r.Context(), r.Header.Get("Idempotency-Key"))
		if err != nil {
			httponce.Unknown(r, err) // the bank may have made the charge
			http.Error(w, "the charge may have been made", http.StatusBadGateway)
			return
		}
		err = httponce.InTx(r, guard, func(tx *sql.Tx) error { // the row and the response are committed together
			_, err := tx.ExecContext(r.Context(), "INSERT INTO payments (account, receipt) VALUES (?, ?)", accountOf(r), receipt)
			if err != nil {
				return err
			}
			w.WriteHeader(http.StatusCreated)
			_, err = fmt.Fprint(w, receipt)
			return err
		})
		if err != nil {
			http.Error(w, "not saved", http.StatusInternalServerError)
		}
	}
}

func payRoutes(guard *onlyonce.TxGuard[*sql.Tx], pay http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /payments", httponce.Wrap(guard.Guard, pay, httponce.Config{
		Tenant:   accountOf,
		Required: true,
		Fingerprint: func(_ *http.Request, body []byte) []byte { // as in the table, so that its hashes can be imported
			sum := sha256.Sum256(body)
			return sum[:]
		},
	}))
	return mux
}

func payDuringTheSwitch(db *sql.DB, guard *onlyonce.TxGuard[*sql.Tx], charge func(ctx context.Context, key string) (string, error)) http.Handler {
	return payRoutes(guard, withOutcomes(payByTable(db, charge)))
}

// withOutcomes tells Onlyonce what the errors of the old handler mean. Its 409 says that the request
// is in progress, and its 422 that the key belongs to another request, whose retry still has to find
// its response: neither becomes the response of the command. After its 500 and its 502, the bank
// may have made the charge.
func withOutcomes(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&oldResponse{w, r}, r)
	})
}

type oldResponse struct {
	http.ResponseWriter
	request *http.Request
}

func (w *oldResponse) WriteHeader(status int) {
	switch status {
	case http.StatusConflict:
		w.Header().Set("Retry-After", "1") // a 409 with it is not stored
	case http.StatusUnprocessableEntity:
		httponce.DontStore(w.request)
	case http.StatusInternalServerError, http.StatusBadGateway:
		httponce.Unknown(w.request, errors.New("the charge may have been made"))
	}
	w.ResponseWriter.WriteHeader(status)
}

func openPayments(t *testing.T) (*sql.DB, *onlyonce.TxGuard[*sql.Tx]) {
	t.Helper()
	db := openDB(t, keysTable)
	if err := sqlstore.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	store, err := sqlstore.Open(t.Context(), db, sqlstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return db, onlyonce.NewTx(store, onlyonce.Config{HoldUnknown: true, Observer: onlyonce.DiscardEvents})
}

func TestKeyTable_ByHandADoubtIsChargedAgain(t *testing.T) {
	var b bank
	db, _ := openPayments(t)
	byHand := payByTable(db, b.chargeKey)
	want(t, "the first", send(byHand, "/payments", "k", "amount=1"), 201, "receipt 1", false)
	want(t, "its repeat", send(byHand, "/payments", "k", "amount=1"), 201, "receipt 1", false)
	want(t, "another request under its key", send(byHand, "/payments", "k", "amount=2"), 422, "another request", false)
	b.fails = errNoAnswer
	want(t, "a charge without an answer", send(byHand, "/payments", "l", "amount=2"), 502, "failed", false)
	b.fails = nil
	want(t, "its repeat", send(byHand, "/payments", "l", "amount=2"), 409, "in progress", false)
	if _, err := db.ExecContext(t.Context(), "UPDATE idempotency_keys SET locked_at = locked_at - 91"); err != nil {
		t.Fatal(err)
	}
	want(t, "its repeat after 90 seconds", send(byHand, "/payments", "l", "amount=2"), 201, "receipt 3", false)
	b.wantCharges(t, 3) // two of them for one command
}

func TestKeyTable_WithInTxRowAndResponseAreCommittedTogetherAndADoubtIsHeld(t *testing.T) {
	var b bank
	db, guard := openPayments(t)
	h := payRoutes(guard, pay(guard, b.chargeKey))
	want(t, "the first", send(h, "/payments", "k", "amount=1"), 201, "receipt 1", false)
	want(t, "its repeat", send(h, "/payments", "k", "amount=1"), 201, "receipt 1", true)
	want(t, "another request under its key", send(h, "/payments", "k", "amount=2"), 422, httponce.CodeKeyReused, false)
	b.fails = errNoAnswer
	want(t, "a charge without an answer", send(h, "/payments", "l", "amount=2"), 502, "may have been made", false)
	b.fails = nil
	want(t, "its repeat", send(h, "/payments", "l", "amount=2"), 409, httponce.CodeOutcomeUnknown, false)
	b.wantCharges(t, 2)
	if n := count(t, db, "SELECT count(*) FROM payments"); n != 1 {
		t.Errorf("there are %d payments", n)
	}
}

func TestKeyTable_DuringTheSwitchAPaymentIsMadeOnceByBothVersions(t *testing.T) {
	var b bank
	db, guard := openPayments(t)
	before, during := payByTable(db, b.chargeKey), payDuringTheSwitch(db, guard, b.chargeKey)
	want(t, "a payment of the old version", send(before, "/payments", "old", "amount=1"), 201, "receipt 1", false)
	want(t, "another payment under its key", send(during, "/payments", "old", "amount=2"), 422, "another request", false)
	want(t, "its retry at the new one", send(during, "/payments", "old", "amount=1"), 201, "receipt 1", false)
	want(t, "the next retry", send(during, "/payments", "old", "amount=1"), 201, "receipt 1", true)
	want(t, "a payment of the new version", send(during, "/payments", "new", "amount=2"), 201, "receipt 2", false)
	want(t, "its retry at the old one", send(before, "/payments", "new", "amount=2"), 201, "receipt 2", false)
	if _, err := db.ExecContext(t.Context(), `INSERT INTO idempotency_keys (account, idempotency_key, request_hash, created_at, locked_at)
		SELECT account, 'running', request_hash, created_at, ? FROM idempotency_keys WHERE idempotency_key = 'new'`, time.Now().Unix()); err != nil {
		t.Fatal(err)
	}
	want(t, "one that runs in the old version", send(during, "/payments", "running", "amount=2"), 409, "in progress", false)
	if _, err := db.ExecContext(t.Context(), "UPDATE idempotency_keys SET locked_at = NULL, response_code = 201, response_body = 'receipt 7' WHERE idempotency_key = 'running'"); err != nil {
		t.Fatal(err)
	}
	want(t, "its retry when it has ended", send(during, "/payments", "running", "amount=2"), 201, "receipt 7", false)
	b.wantCharges(t, 2)
	b.fails = errNoAnswer
	want(t, "a charge without an answer", send(during, "/payments", "doubt", "amount=3"), 502, "failed", false)
	b.fails = nil
	if _, err := db.ExecContext(t.Context(), "UPDATE idempotency_keys SET locked_at = locked_at - 91"); err != nil {
		t.Fatal(err)
	}
	want(t, "its repeat after 90 seconds", send(during, "/payments", "doubt", "amount=3"), 409, httponce.CodeOutcomeUnknown, false)
	b.wantCharges(t, 3)
}
