package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// waits waits until so many sessions with a name wait for a lock.
func waits(t *testing.T, db *sql.DB, name string, want int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d sessions wait for a lock", want), func() bool {
		var n int
		if err := db.QueryRow("SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'", name).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == want
	})
}

func TestPostgreSQL_AClaimThatWaitedForALockPastTheLeaseTakesOver(t *testing.T) {
	schema := newPostgresSchema(t)
	s, db := schema.open(t)
	waiting := openOn(t, schema.pool(t, "application_name="+schema.name))
	c := serverClaim("k")
	c.Lease = 300 * time.Millisecond
	r, err := s.Claim(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	// The lease has not lapsed in anyone's eyes when the taker begins to wait: its
	// holder's transaction, which renews nothing, has the row.
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.Exec("SELECT 1 FROM onlyonce_records FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the lease lapses", func() bool {
		was, err := s.Lookup(t.Context(), c.ID)
		return err == nil && was.LeaseLeft <= 0
	})
	if _, err := tx.Exec("UPDATE onlyonce_records SET lease_until = onlyonce_now() + 300000"); err != nil {
		t.Fatal(err)
	}
	taker := serverClaim("k")
	taker.TakeUnknown = true
	var took onlyonce.Record
	var took2 error
	var wg sync.WaitGroup
	wg.Go(func() { took, took2 = waiting.Claim(t.Context(), taker) })
	waits(t, db, schema.name, 1)
	var left int64
	eventually(t, "the renewed lease lapses too", func() bool {
		if err := tx.QueryRow("SELECT lease_until - onlyonce_now() FROM onlyonce_records").Scan(&left); err != nil {
			t.Fatal(err)
		}
		return left < 0
	})
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if took2 != nil || took.Owner != taker.Owner || took.Fence <= r.Fence || took.Attempt != 2 {
		t.Errorf("the claim got %+v and error %v", took, took2)
	}
}

// The renewal lapses while the claim waits for the row, so that owner, fence and
// state are what the claim has seen.
func TestPostgreSQL_AClaimThatWaitedForARenewalKeepsItsSteps(t *testing.T) {
	schema := newPostgresSchema(t)
	s, db := schema.open(t)
	waiting := schema.pool(t, "application_name="+schema.name)
	pgx := openPgxstore(t, schema.with(t, "application_name="+schema.name))
	for key, store := range map[string]onlyonce.Store{"sqlstore": openOn(t, waiting), "pgxstore": pgx} {
		t.Run(key, func(t *testing.T) {
			c := serverClaim(key)
			c.Lease = time.Millisecond
			r, err := s.Claim(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			lapses := func() {
				eventually(t, "the lease lapses", func() bool {
					was, err := s.Lookup(t.Context(), c.ID)
					return err == nil && was.LeaseLeft <= 0
				})
			}
			lapses()
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			if _, err := tx.Exec("SELECT 1 FROM onlyonce_records WHERE owner = $1 FOR UPDATE", []byte(c.Owner)); err != nil {
				t.Fatal(err)
			}
			taker := serverClaim(key)
			taker.TakeUnknown = true
			var took onlyonce.Record
			var failed error
			var wg sync.WaitGroup
			wg.Go(func() { took, failed = store.Claim(t.Context(), taker) })
			waits(t, db, schema.name, 1)
			hold := onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}
			if err := s.WithTx(tx).Renew(t.Context(), hold, time.Millisecond, map[string][]byte{"charge": []byte("1")}); err != nil {
				t.Fatal(err)
			}
			var left int64
			eventually(t, "the renewed lease lapses too", func() bool {
				if err := tx.QueryRow("SELECT lease_until - onlyonce_now() FROM onlyonce_records WHERE owner = $1", []byte(c.Owner)).Scan(&left); err != nil {
					t.Fatal(err)
				}
				return left < 0
			})
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			wg.Wait()
			if failed != nil || took.Owner != taker.Owner || string(took.Steps["charge"]) != "1" {
				t.Errorf("the claim got %+v and error %v", took, failed)
			}
			if r, err := s.Lookup(t.Context(), c.ID); err != nil || string(r.Steps["charge"]) != "1" {
				t.Errorf("the record is %+v, %v", r, err)
			}
		})
	}
}

func TestPostgreSQL_ADuplicateInAnotherProcessIsRejectedAtOnce(t *testing.T) {
	type place struct {
		name string
		open func(t *testing.T) (*sqlstore.Store, *sqlstore.Store)
	}
	for _, p := range []place{
		{"PostgreSQL", func(t *testing.T) (*sqlstore.Store, *sqlstore.Store) {
			schema := newPostgresSchema(t)
			a, _ := schema.open(t)
			b, _ := schema.open(t)
			return a, b
		}},
		{"MySQL", func(t *testing.T) (*sqlstore.Store, *sqlstore.Store) {
			d := newMySQLDatabase(t)
			a, _ := d.open(t)
			b, _ := d.open(t)
			return a, b
		}},
	} {
		t.Run(p.name, func(t *testing.T) {
			a, b := p.open(t)
			c := serverClaim("k")
			never := func(context.Context, *sql.Tx, onlyonce.Record) (onlyonce.Settlement, error) {
				t.Error("the duplicate ran")
				return done("twice"), nil
			}
			r, err := a.RunTx(t.Context(), c, func(ctx context.Context, _ *sql.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
				atOnce, cancel := context.WithTimeout(ctx, answerLimit/2) // a transaction that waits for this function waits forever
				defer cancel()
				dup := serverClaim("k")
				r, err := b.RunTx(atOnce, dup, never)
				if err != nil || r.State != onlyonce.StateProcessing || r.Owner == dup.Owner || r.LeaseLeft <= 0 {
					t.Errorf("the duplicate got %+v and error %v", r, err)
				}
				if r, err := b.RunTx(ctx, serverClaim("another"), func(context.Context, *sql.Tx, onlyonce.Record) (onlyonce.Settlement, error) {
					return done("another"), nil
				}); err != nil || r.State != onlyonce.StateCompleted {
					t.Errorf("another command got %+v and error %v", r, err)
				}
				return done("once"), nil
			})
			if err != nil || r.Owner != c.Owner {
				t.Fatalf("run got %+v and error %v", r, err)
			}
			if r, err := b.RunTx(t.Context(), serverClaim("k"), never); err != nil || string(r.Result.Body) != "once" {
				t.Errorf("the repeat got %+v and error %v", r, err)
			}
		})
	}
}

// The locks of commands are the database's, and not a schema's.
func TestPostgreSQL_ACommandDoesNotWaitForItsNamesakeInAnotherSchema(t *testing.T) {
	run := func(then func()) {
		s, _ := newPostgresSchema(t).open(t)
		r, err := s.RunTx(t.Context(), serverClaim("k"), func(context.Context, *sql.Tx, onlyonce.Record) (onlyonce.Settlement, error) {
			then()
			return done("made"), nil
		})
		if err != nil || r.State != onlyonce.StateCompleted {
			t.Errorf("run got %+v and error %v", r, err)
		}
	}
	run(func() { run(func() {}) })
}

func TestPostgreSQL_ATimeoutOfTheServersIsReportedAsOne(t *testing.T) {
	schema := newPostgresSchema(t)
	_, db := schema.open(t)
	s := openOn(t, schema.pool(t, "lock_timeout=100ms"))
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := s.WithTx(tx).Claim(t.Context(), serverClaim("k")); err != nil {
		t.Fatal(err)
	}
	_, err = s.Claim(t.Context(), serverClaim("k"))
	if !errors.Is(err, onlyonce.ErrUnavailable) || !strings.Contains(err.Error(), "raise them") {
		t.Errorf("the claim got error %v", err)
	}
}

func TestPostgreSQL_AClaimGoesOnWhileOthersComeFirst(t *testing.T) {
	t.Parallel()
	s := newPostgresSchema(t)
	store, db := s.open(t)
	// Of the first 100 claims of a released record, each finds that another one came first.
	execute(t, db, "CREATE SEQUENCE claims",
		`CREATE FUNCTION come_first() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF nextval('claims') <= 100 THEN RETURN NULL; END IF;
			RETURN NEW;
		END $$`,
		"CREATE TRIGGER come_first BEFORE UPDATE ON onlyonce_records FOR EACH ROW WHEN (OLD.state = 'released') EXECUTE FUNCTION come_first()")
	stores := map[string]onlyonce.Store{"sqlstore": store, "pgxstore": openPgxstore(t, s.with(t))}
	for name, store := range stores {
		t.Run(name, func(t *testing.T) {
			execute(t, db, "ALTER SEQUENCE claims RESTART")
			c := onlyonce.Claim{ID: onlyonce.ID{Operation: "order", Key: name}, SkipFingerprint: true, Owner: "first", Lease: time.Minute}
			r, err := store.Claim(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if err := store.Settle(t.Context(), onlyonce.Hold{ID: c.ID, Owner: r.Owner, Fence: r.Fence}, onlyonce.Settlement{}); err != nil {
				t.Fatal(err)
			}
			c.Owner = "second"
			if r, err = store.Claim(t.Context(), c); err != nil || r.Owner != c.Owner {
				t.Errorf("the claim has the record of %q, error %v", r.Owner, err)
			}
		})
	}
}
