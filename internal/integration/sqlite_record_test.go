package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

func (p place) exec(query string, args ...any) {
	p.Helper()
	if _, err := p.db.Exec(query, args...); err != nil {
		p.Fatalf("%s: %v", query, err)
	}
}

// claims wants a claim to be given.
func (p place) claims(c onlyonce.Claim) onlyonce.Record {
	p.Helper()
	r, err := p.store.Claim(p.Context(), c)
	if err != nil || r.Owner != c.Owner {
		p.Fatalf("claim: %v, %v", r, err)
	}
	return r
}

func (p place) settles(r onlyonce.Record, s onlyonce.Settlement) {
	p.Helper()
	if err := p.store.Settle(p.Context(), onlyonce.Hold{ID: r.ID, Owner: r.Owner, Fence: r.Fence}, s); err != nil {
		p.Fatalf("settle: %v", err)
	}
}

func TestSQLite_ARecordIsReadWithPlainSQL(t *testing.T) {
	p := newPlace(t)
	r := p.claims(claimOf("order-1"))
	s := completed
	s.Result.Ref = "A-17"
	p.settles(r, s)
	var key, state, ref, header, created, expires string
	var status int
	err := p.db.QueryRow(`SELECT idem_key, state, result_ref, status_code, response_header, created_at, expires_at FROM onlyonce_readable`).
		Scan(&key, &state, &ref, &status, &header, &created, &expires)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(key, " ", state, " ", ref, " ", status, " ", header)
	if want := `order-1 completed A-17 201 {"Content-Type":["application/json"]}`; got != want {
		t.Errorf("read %s, want %s", got, want)
	}
	for _, at := range []string{created, expires} {
		if when, err := time.Parse(time.RFC3339, at); err != nil || time.Until(when).Abs() > 2*time.Hour {
			t.Errorf("the time is %s, %v", at, err)
		}
	}
}

func TestSQLite_ARecordThatCanNotBeReadCountsAsUnknown(t *testing.T) {
	for name, damage := range map[string]string{
		"header": `UPDATE onlyonce_records SET response_header = '{"Content-Type'`,
		"base64": `UPDATE onlyonce_records SET response_header = '{"X":["\u0000base64:%"]}'`,
		"steps":  `UPDATE onlyonce_records SET steps = '[]'`,
		"state":  `UPDATE onlyonce_records SET state = 'finished'`,
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			c := claimOf("k")
			p.settles(p.claims(c), completed)
			p.exec(damage)
			r, err := p.store.Lookup(t.Context(), c.ID)
			if err != nil || !r.Corrupt || r.State != onlyonce.StateUnknown || r.Error == "" || string(r.Result.Body) != string(answer.Body) || r.ID != c.ID {
				t.Fatalf("looked up %v, %v", r, err)
			}
			hold := claimOf("k")
			hold.TakeUnknown = false
			if r, err := p.store.Claim(t.Context(), hold); err != nil || !r.Corrupt || r.Owner != c.Owner {
				t.Errorf("a claim that does not take the unknown got %v, %v", r, err)
			}
			for r, err := range p.store.List(t.Context(), onlyonce.Filter{State: onlyonce.StateUnknown}) {
				if err != nil || !r.Corrupt {
					t.Errorf("listed %v, %v", r, err)
				}
			}
			again := p.claims(claimOf("k"))
			if again.Attempt != 2 || again.Fence <= r.Fence {
				t.Errorf("taken as %v", again)
			}
			p.settles(again, completed)
			p.wants("k", 0, onlyonce.StateCompleted)
		})
	}
}

// Attack 16: two commands with one hash.
func TestSQLite_Attack16AHashCollisionIsAnErrorAndNeverAReplay(t *testing.T) {
	p := newPlace(t)
	c := claimOf("k")
	p.settles(p.claims(c), completed)
	p.exec("UPDATE onlyonce_records SET tenant = 'victim'")
	for name, ask := range map[string]func() error{
		"lookup": func() error { _, err := p.store.Lookup(t.Context(), c.ID); return err },
		"claim":  func() error { _, err := p.store.Claim(t.Context(), claimOf("k")); return err },
		"run":    func() error { _, err := p.store.RunTx(t.Context(), claimOf("k"), p.inserts("k")); return err },
		"resolve": func() error {
			return p.store.Resolve(t.Context(), onlyonce.Record{ID: c.ID, Fence: 1, State: onlyonce.StateCompleted}, completed)
		},
		"claim in a transaction": func() error {
			tx, err := p.db.Begin()
			if err != nil {
				return err
			}
			defer tx.Rollback()
			_, err = p.store.WithTx(tx).Claim(t.Context(), claimOf("k"))
			return err
		},
	} {
		if err := ask(); err == nil || !strings.Contains(err.Error(), "same hash") {
			t.Errorf("%s returned %v", name, err)
		}
	}
	if n, _ := p.Count(t.Context(), "k"); n != 0 {
		t.Error("the function ran")
	}
}

// stop makes the store's clock stand still at a time.
func (p place) stop(at time.Time) {
	p.exec("DROP VIEW onlyonce_clock")
	p.exec(fmt.Sprintf(`CREATE VIEW onlyonce_clock AS
		SELECT %d AS now, coalesce((SELECT max(created_at) FROM onlyonce_records), 0) AS last, floor FROM onlyonce_fence`, at.UnixMicro()))
}

func TestSQLite_AFenceGrowsAlsoWhenTheHostsClockStandsStillOrIsSetBack(t *testing.T) {
	p := newPlace(t)
	var last int64
	check := func(how string, fence int64) {
		t.Helper()
		if fence <= last {
			t.Errorf("%s: fence %d after %d", how, fence, last)
		}
		last = fence
	}
	short := completed
	short.Keep = time.Minute
	now := time.Now()
	functions := map[string]func(tx *sql.Tx) (onlyonce.Settlement, error){
		"releases":             func(*sql.Tx) (onlyonce.Settlement, error) { return onlyonce.Settlement{}, nil },
		"fails":                func(*sql.Tx) (onlyonce.Settlement, error) { return onlyonce.Settlement{}, errors.New("no stock") },
		"panics":               func(*sql.Tx) (onlyonce.Settlement, error) { panic("a bug") },
		"ends its transaction": func(tx *sql.Tx) (onlyonce.Settlement, error) { return completed, tx.Rollback() },
		"is recorded as failed": func(tx *sql.Tx) (onlyonce.Settlement, error) {
			return onlyonce.Settlement{State: onlyonce.StateFailed}, errors.New("no stock")
		},
	}
	ways := map[string]func(r onlyonce.Record){
		"released": func(r onlyonce.Record) { p.settles(r, onlyonce.Settlement{}) },
		"purged": func(r onlyonce.Record) {
			p.settles(r, short)
			p.exec("UPDATE onlyonce_records SET expires_at = 1")
			if n, err := p.store.Purge(t.Context(), 10); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		},
		"expired": func(r onlyonce.Record) {
			p.settles(r, short)
			p.exec("UPDATE onlyonce_records SET expires_at = 1")
		},
		"resolved": func(r onlyonce.Record) {
			p.settles(r, onlyonce.Settlement{State: onlyonce.StateUnknown})
			r.State = onlyonce.StateUnknown
			if err := p.store.Resolve(t.Context(), r, onlyonce.Settlement{}); err != nil {
				t.Fatal(err)
			}
		},
		"failed": func(r onlyonce.Record) { p.settles(r, onlyonce.Settlement{State: onlyonce.StateFailed}) },
	}
	for name, end := range ways {
		for _, by := range []time.Duration{0, 0, -time.Hour, -24 * time.Hour} {
			p.stop(now.Add(by))
			r := p.claims(claimOf("k"))
			check("after it was "+name, r.Fence)
			end(r)
			for how, ends := range functions {
				func() {
					defer func() { _ = recover() }()
					_, _ = p.store.RunTx(t.Context(), claimOf("k"), func(_ context.Context, tx *sql.Tx, r onlyonce.Record) (onlyonce.Settlement, error) {
						check("in a function that "+how, r.Fence)
						return ends(tx)
					})
				}()
			}
		}
	}
}

// inOrder runs calls in the order given, together if they fit.
func (p place) inOrder(calls ...func()) {
	release := p.hold("holds the lock " + nextID().Key)
	var all sync.WaitGroup
	for i, call := range calls {
		all.Go(call)
		p.queued(i + 1)
	}
	release()
	all.Wait()
}

func TestSQLite_AFenceThatCouldNotBeRecordedIsNotIssuedAgain(t *testing.T) {
	p := newPlace(t)
	p.stop(time.Now()) // no fence is higher because of the clock
	var last int64
	check := func(how string, fence int64) {
		t.Helper()
		if fence <= last {
			t.Errorf("%s: fence %d after %d", how, fence, last)
		}
		last = max(last, fence)
	}
	c := claimOf("k")
	fails := func(_ context.Context, _ *sql.Tx, r onlyonce.Record) (onlyonce.Settlement, error) {
		check("in a function", r.Fence)
		return onlyonce.Settlement{}, errors.New("no stock")
	}
	nexts := map[string]func(){
		"in a function": func() { _, _ = p.store.RunTx(t.Context(), c, fails) },
		"outside a transaction": func() {
			r := p.claims(c)
			check("outside a transaction", r.Fence)
			p.settles(r, onlyonce.Settlement{})
		},
		"in a transaction of the caller's": func() {
			tx, err := p.db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			s := p.store.WithTx(tx)
			r, err := s.Claim(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			check("in a transaction of the caller's", r.Fence)
			h := onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}
			if err := errors.Join(s.Settle(t.Context(), h, onlyonce.Settlement{}), tx.Commit()); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, next := range nexts {
		// A full disk fails where SQLite needs space. Here, that is where a fence is recorded.
		p.exec("CREATE TRIGGER full BEFORE UPDATE ON onlyonce_fence BEGIN SELECT RAISE(ABORT, 'disk is full'); END")
		seen := last
		for range 2 {
			_, _ = p.store.RunTx(t.Context(), c, fails)
		}
		p.exec("DROP TRIGGER full")
		if last == seen {
			t.Fatalf("%s: the function did not run", name)
		}
		next()
		p.settles(p.claims(claimOf("another")), onlyonce.Settlement{}) // which records the fence
	}
	again := openOn(t, p.db)
	_, _ = again.RunTx(t.Context(), c, fails)
}

func TestSQLite_AFenceGrowsWithinATransaction(t *testing.T) {
	file := filepath.Join(t.TempDir(), "records.db")
	p := newPlaceIn(t, file)
	now := time.Now()
	p.stop(now)
	first := claimOf("k")
	first.Lease = 0
	p.claims(first)
	p.stop(now.Add(time.Minute))
	held := p.claims(claimOf("k")) // taken over, by a clock that is then set back
	p.stop(now)
	p = newPlaceIn(t, file) // which has not seen the record, and so does not return it without the lock
	var next, inner, outer int64
	p.inOrder(
		func() { p.settles(held, onlyonce.Settlement{}) },
		func() { next = p.claims(claimOf("k")).Fence },
	)
	if next <= held.Fence {
		t.Errorf("fence %d follows %d", next, held.Fence)
	}
	p.inOrder(
		func() {
			_, err := p.store.RunTx(t.Context(), claimOf("outer"), func(ctx context.Context, tx *sql.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
				c := claimOf("inner")
				r, err := p.store.WithTx(tx).Claim(ctx, c)
				inner = r.Fence
				return completed, errors.Join(err, p.store.WithTx(tx).Settle(ctx, onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}, onlyonce.Settlement{}))
			})
			if err != nil {
				t.Error(err)
			}
		},
		func() {
			_, err := p.store.RunTx(t.Context(), claimOf("inner"), func(_ context.Context, _ *sql.Tx, r onlyonce.Record) (onlyonce.Settlement, error) {
				outer = r.Fence
				return completed, nil
			})
			if err != nil {
				t.Error(err)
			}
		},
	)
	if outer <= inner {
		t.Errorf("fence %d follows %d", outer, inner)
	}
}

func TestSQLite_ManyRecordsOfOneInstantAreListedOnceEach(t *testing.T) {
	p := newPlace(t)
	p.stop(time.Now())
	p.claims(claimOf("before"))
	for i := range 500 {
		p.claims(claimOf(fmt.Sprint(i)))
	}
	seen := make(map[string]bool)
	var after onlyonce.Record
	for {
		n := 0
		for r, err := range p.store.List(t.Context(), onlyonce.Filter{After: after, Limit: 30}) {
			if err != nil {
				t.Fatal(err)
			}
			if seen[r.ID.Key] {
				t.Errorf("%s is listed twice", r.ID.Key)
			}
			seen[r.ID.Key], after = true, r
			n++
		}
		if n == 0 {
			break
		}
	}
	if len(seen) != 501 {
		t.Errorf("%d records are listed", len(seen))
	}
}

func TestSQLite_ATransactionOfTheCallersCommitsOrForgetsTheRecord(t *testing.T) {
	p := newPlace(t)
	inTx := func(commit bool, f func(onlyonce.Store)) {
		t.Helper()
		tx, err := p.db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		f(p.store.WithTx(tx))
		if commit {
			err = tx.Commit()
		} else {
			err = tx.Rollback()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	c := claimOf("k")
	claim := func(s onlyonce.Store) {
		if r, err := s.Claim(t.Context(), c); err != nil || r.Owner != c.Owner {
			t.Errorf("claim: %v, %v", r, err)
		}
	}
	inTx(false, claim)
	p.wants("k", 0, "")
	inTx(true, claim)
	p.wants("k", 0, onlyonce.StateProcessing)
	r, err := p.store.Lookup(t.Context(), c.ID)
	if err != nil {
		t.Fatal(err)
	}
	h := onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}
	settle := func(s onlyonce.Store) {
		if err := errors.Join(
			s.Renew(t.Context(), h, time.Hour, map[string][]byte{"charge": []byte("ch_1")}),
			s.Settle(t.Context(), h, completed),
			s.Settle(t.Context(), h, completed), // again
		); err != nil {
			t.Errorf("settle: %v", err)
		}
		if r, err := s.Lookup(t.Context(), c.ID); err != nil || r.State != onlyonce.StateCompleted || string(r.Steps["charge"]) != "ch_1" {
			t.Errorf("inside: %v, %v", r, err)
		}
	}
	inTx(false, settle)
	p.wants("k", 0, onlyonce.StateProcessing)
	inTx(true, settle)
	p.wants("k", 0, onlyonce.StateCompleted)
	inTx(true, func(s onlyonce.Store) {
		if _, err := s.Lookup(t.Context(), claimOf("absent").ID); !errors.Is(err, onlyonce.ErrNotFound) {
			t.Errorf("lookup: %v", err)
		}
		lost := h
		lost.Owner = owner()
		if err := s.Settle(t.Context(), lost, completed); !errors.Is(err, onlyonce.ErrLost) {
			t.Errorf("settle: %v", err)
		}
	})
}

// A record whose keep had begun with the batch of its function could expire before it was committed.
func TestSQLite_TheKeepOfARecordBeginsWhenItsFunctionHasReturned(t *testing.T) {
	p := newPlace(t)
	p.exec("CREATE TABLE clock_of_the_test (now INTEGER)")
	p.exec("INSERT INTO clock_of_the_test VALUES (?)", time.Now().UnixMicro())
	p.exec("DROP VIEW onlyonce_clock")
	p.exec(`CREATE VIEW onlyonce_clock AS
		SELECT (SELECT now FROM clock_of_the_test) AS now, coalesce((SELECT max(created_at) FROM onlyonce_records), 0) AS last, floor FROM onlyonce_fence`)
	short := completed
	short.Keep = time.Minute
	slow := func(tx *sql.Tx) (onlyonce.Settlement, error) {
		time.Sleep(10 * time.Millisecond)
		_, err := tx.Exec("UPDATE clock_of_the_test SET now = now + ?", time.Hour.Microseconds())
		return short, err
	}
	check := func(r onlyonce.Record) {
		t.Helper()
		now, err := p.store.Lookup(t.Context(), r.ID)
		if err != nil || now.KeepLeft <= 0 || now.KeepLeft > short.Keep+time.Second {
			t.Errorf("the record is %+v, error %v", now, err)
		}
		if took := now.SettledAt.Sub(r.CreatedAt); took < time.Hour {
			t.Errorf("it was settled %v after its claim", took)
		}
	}
	r, err := p.store.RunTx(t.Context(), claimOf("run"), func(_ context.Context, tx *sql.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) { return slow(tx) })
	if err != nil {
		t.Fatal(err)
	}
	check(r)
	if now, err := p.store.Lookup(t.Context(), r.ID); err != nil || !now.SettledAt.Equal(r.SettledAt) {
		t.Errorf("RunTx returned %v, and stored %v, error %v", r.SettledAt, now.SettledAt, err)
	}
	held := p.claims(claimOf("settle"))
	err = p.store.SettleTx(t.Context(), onlyonce.Hold{ID: held.ID, Owner: held.Owner, Fence: held.Fence}, func(_ context.Context, tx *sql.Tx) (onlyonce.Settlement, error) { return slow(tx) })
	if err != nil {
		t.Fatal(err)
	}
	check(held)
}
