package integration

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/stores/cryptstore"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
	"github.com/onlyonce-go/onlyonce/stores/storetest"
)

// newCipher returns a cipher whose keys have the IDs, the first of which is the current one.
func newCipher(t testing.TB, ids ...string) *cryptstore.Cipher {
	t.Helper()
	var keys []cryptstore.Key
	for _, id := range ids {
		k, err := cryptstore.NewKey(id, bytes.Repeat([]byte(id), 32))
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, k)
	}
	set, err := cryptstore.NewKeySet(keys[0], keys[1:]...)
	if err != nil {
		t.Fatal(err)
	}
	return cryptstore.New(cryptstore.Config{Keys: set})
}

func TestCryptStore_OnSQLiteItKeepsTheRulesOfAStore(t *testing.T) {
	needs.Time(t)
	t.Parallel()
	storetest.Run(t, func(t *testing.T) onlyonce.Store {
		s, _ := newSQLite(t)
		return cryptstore.WrapTx(newCipher(t, "a"), onlyonce.TxStore[*sql.Tx](s))
	})
}

func TestCryptStore_OnSQLiteItKeepsTheRulesOfATxStore(t *testing.T) {
	needs.Time(t)
	storetest.RunTx(t, func(t *testing.T) storetest.Tx[*sql.Tx] {
		tx, _ := newSQLiteTx(t, filepath.Join(t.TempDir(), "records.db"))
		tx.Store = cryptstore.WrapTx(newCipher(t, "a"), tx.Store)
		return tx
	})
}

// A cryptDB is an encrypted store on a SQLite database, and a command.
type cryptDB struct {
	*testing.T
	db    *sql.DB
	inner *sqlstore.Store
	store onlyonce.TxStore[*sql.Tx]
	id    onlyonce.ID
}

func newCryptDB(t *testing.T) *cryptDB {
	s, db := newSQLite(t)
	return &cryptDB{t, db, s, cryptstore.WrapTx(newCipher(t, "a"), onlyonce.TxStore[*sql.Tx](s)), onlyonce.ID{Tenant: "acme", Operation: "pay", Key: "k"}}
}

func (d *cryptDB) exec(query string, args ...any) {
	d.Helper()
	if _, err := d.db.Exec(query, args...); err != nil {
		d.Fatal(err)
	}
}

// run runs the command in a transaction and returns the answer and whether the function ran.
func (d *cryptDB) run(cfg onlyonce.Config) (a onlyonce.Answer[string], ran bool, err error) {
	cfg.Observer = onlyonce.DiscardEvents
	g := onlyonce.NewTx(d.store, cfg)
	a, err = onlyonce.DoTx(d.Context(), g, onlyonce.Request{ID: d.id, SkipFingerprint: true}, func(context.Context, *sql.Tx) (string, error) {
		ran = true
		return "paid", nil
	})
	return a, ran, err
}

func TestCryptStore_NothingOfAResponseIsInTheFile(t *testing.T) {
	d := newCryptDB(t)
	const secret = "a customer's secret"
	g := onlyonce.New(d.store, onlyonce.Config{Observer: onlyonce.DiscardEvents})
	_, err := onlyonce.Do(t.Context(), g, onlyonce.Request{ID: d.id, SkipFingerprint: true}, func(ctx context.Context) (string, error) {
		_, err := onlyonce.Step(ctx, "charge", func(context.Context) (string, error) { return secret, nil })
		return secret, err
	})
	if err != nil {
		t.Fatal(err)
	}
	var all string
	if err := d.db.QueryRow("SELECT group_concat(quote(response_body) || quote(steps) || quote(error) || quote(response_header)) FROM onlyonce_records").Scan(&all); err != nil {
		t.Fatal(err)
	}
	if bytes.Contains([]byte(all), []byte(secret)) || bytes.Contains([]byte(all), []byte("7365637265742")) {
		t.Errorf("the row is %s", all)
	}
}

func TestCryptStore_ARowThatWasChangedDoesNotRunAsAFailure(t *testing.T) {
	for name, change := range map[string]string{
		"a state":  "UPDATE onlyonce_records SET state = 'failed'",
		"a status": "UPDATE onlyonce_records SET status_code = 500",
		"a body":   "UPDATE onlyonce_records SET response_body = x'6f6f65'",
		"a ref":    "UPDATE onlyonce_records SET result_ref = 'x'",
		"a tenant": "UPDATE onlyonce_records SET response_body = (SELECT response_body FROM onlyonce_records WHERE tenant = 'other') WHERE tenant = 'acme'",
		"a step":   `UPDATE onlyonce_records SET steps = '{"charge":"b29l"}'`,
	} {
		d := newCryptDB(t)
		own := d.id
		d.id.Tenant = "other"
		d.run(onlyonce.Config{})
		d.id = own
		if _, ran, err := d.run(onlyonce.Config{}); err != nil || !ran {
			t.Fatalf("%s: it ran: %v, error %v", name, ran, err)
		}
		d.exec(change)
		if r, err := d.store.Lookup(t.Context(), d.id); err != nil || !r.Corrupt || r.State != onlyonce.StateUnknown {
			t.Errorf("%s: the record is %+v, error %v", name, r, err)
		}
		_, ran, err := d.run(onlyonce.Config{HoldUnknown: true})
		if ran || !errors.Is(err, onlyonce.ErrUnknown) || !errors.Is(err, onlyonce.ErrCorrupt) {
			t.Errorf("%s: while a person has to decide, it ran: %v, error %v", name, ran, err)
		}
		a, ran, err := d.run(onlyonce.Config{})
		if err != nil || !ran || a.Attempt != 2 {
			t.Errorf("%s: with an unknown outcome, it ran: %v, %+v, error %v", name, ran, a, err)
		}
		a, ran, err = d.run(onlyonce.Config{})
		if err != nil || ran || !a.Replayed || a.Value != "paid" {
			t.Errorf("%s: after that, it ran: %v, %+v, error %v", name, ran, a, err)
		}
	}
}

func TestCryptStore_ARowThatIsNotEncryptedDoesNotRun(t *testing.T) {
	for name, change := range map[string]string{
		"a body": "UPDATE onlyonce_records SET response_body = x'7b7d'",
		"a step": `UPDATE onlyonce_records SET steps = '{"charge":"e30="}'`,
	} {
		d := newCryptDB(t)
		d.run(onlyonce.Config{})
		d.exec(change)
		if _, ran, err := d.run(onlyonce.Config{}); ran || !errors.Is(err, cryptstore.ErrNotEncrypted) || !errors.Is(err, onlyonce.ErrUnavailable) {
			t.Errorf("%s: it ran: %v, error %v", name, ran, err)
		}
	}
}

func TestCryptStore_WithoutTheKeyOfARecordNoTransactionRuns(t *testing.T) {
	d := newCryptDB(t)
	failed := errors.New("no stock")
	g := onlyonce.NewTx(d.store, onlyonce.Config{Observer: onlyonce.DiscardEvents})
	if _, err := onlyonce.DoTx(t.Context(), g, onlyonce.Request{ID: d.id, SkipFingerprint: true}, func(context.Context, *sql.Tx) (string, error) { return "", failed }); !errors.Is(err, failed) {
		t.Fatal(err)
	}
	d.store = cryptstore.WrapTx(newCipher(t, "b"), onlyonce.TxStore[*sql.Tx](d.inner))
	if _, ran, err := d.run(onlyonce.Config{}); ran || !errors.Is(err, cryptstore.ErrUnknownKey) || !errors.Is(err, onlyonce.ErrUnavailable) {
		t.Errorf("it ran: %v, error %v", ran, err)
	}
	d.store = cryptstore.WrapTx(newCipher(t, "b", "a"), onlyonce.TxStore[*sql.Tx](d.inner))
	if a, ran, err := d.run(onlyonce.Config{}); err != nil || !ran || a.Attempt != 2 {
		t.Errorf("with the key, it ran: %v, %+v, error %v", ran, a, err)
	}
}

func TestCryptStore_AStoreInACallersTransactionIsEncryptedToo(t *testing.T) {
	d := newCryptDB(t)
	tx, err := d.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	s := newCipher(t, "a").Wrap(d.inner.WithTx(tx))
	r, err := s.Claim(t.Context(), onlyonce.Claim{ID: d.id, Owner: "the owner's 16 b", SkipFingerprint: true, Lease: time.Minute})
	if err == nil {
		err = s.Settle(t.Context(), onlyonce.Hold{ID: d.id, Owner: r.Owner, Fence: r.Fence}, onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{Body: []byte(`"paid"`)}})
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
	if a, ran, err := d.run(onlyonce.Config{}); err != nil || ran || a.Value != "paid" {
		t.Errorf("it ran: %v, %+v, error %v", ran, a, err)
	}
}
