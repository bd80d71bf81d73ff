package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/rejectedtx"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
	"github.com/onlyonce-go/onlyonce/stores/storetest"
)

var completed = onlyonce.Settlement{State: onlyonce.StateCompleted, Result: answer, Keep: time.Hour}

func claimOf(key string) onlyonce.Claim {
	return onlyonce.Claim{ID: onlyonce.ID{Tenant: "t", Operation: "op", Key: key}, Owner: owner(), Fingerprint: fingerprint, Lease: time.Minute, RetryFailed: true, TakeUnknown: true}
}

type txFunc = func(context.Context, *sql.Tx, onlyonce.Record) (onlyonce.Settlement, error)

// A place is a store with a table of the caller's.
type place struct {
	*testing.T
	storetest.Tx[*sql.Tx]
	store *sqlstore.Store
	db    *sql.DB
}

func newPlace(t *testing.T) place { return newPlaceIn(t, filepath.Join(t.TempDir(), "records.db")) }

func newPlaceIn(t *testing.T, file string) place {
	tx, db := newSQLiteTx(t, file)
	return place{t, tx, tx.Store.(*sqlstore.Store), db}
}

// wants wants so many rows of the name, and its command in that state, or not
// there if the state is empty.
func (p place) wants(key string, rows int, state onlyonce.State) {
	p.Helper()
	n, err := p.Count(p.Context(), key)
	if err != nil {
		p.Fatal(err)
	}
	r, err := p.store.Lookup(p.Context(), claimOf(key).ID)
	if err != nil && !errors.Is(err, onlyonce.ErrNotFound) {
		p.Fatal(err)
	}
	if n != rows || r.State != state {
		p.Errorf("%s: %d rows and state %q, want %d and %q", key, n, r.State, rows, state)
	}
}

func (p place) inserts(key string) txFunc {
	return func(ctx context.Context, tx *sql.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
		return completed, p.Insert(ctx, tx, key)
	}
}

// hold runs a function that keeps the write lock until release is called.
func (p place) hold(key string) (release func()) {
	in, out, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		_, err := p.store.RunTx(p.Context(), claimOf(key), func(context.Context, *sql.Tx, onlyonce.Record) (onlyonce.Settlement, error) {
			close(in)
			<-out
			return completed, nil
		})
		if err != nil {
			p.Error(err)
		}
	}()
	<-in
	return func() { close(out); <-done }
}

// waitsInQueue is the stack of a caller that waits in a queue, for its turn or for
// its response; what it calls leads, or has its turn.
var waitsInQueue = regexp.MustCompile(`goroutine \d+ [^\n]*\[select[^\n]*\n\S*group\.\(\*Queue\[\.\.\.\]\)\.Do\(`)

// queued waits until n callers wait in the queue of a store, not counting the caller that
// holds the lock.
func (p place) queued(n int) {
	p.Helper()
	dump := make([]byte, 1<<20)
	eventually(p.T, fmt.Sprintf("%d callers wait in the queue", n), func() bool {
		return len(waitsInQueue.FindAll(dump[:runtime.Stack(dump, true)], -1)) >= n
	})
}

// atOnce runs all functions in one transaction.
func (p place) atOnce(fns map[string]txFunc) (errs map[string]error) {
	release := p.hold("holds the lock " + nextID().Key)
	var mu sync.Mutex
	var all sync.WaitGroup
	errs = make(map[string]error)
	for key, fn := range fns {
		all.Go(func() {
			defer func() {
				if r := recover(); r != nil {
					mu.Lock()
					errs[key] = fmt.Errorf("panic: %v", r)
					mu.Unlock()
				}
			}()
			_, err := p.store.RunTx(p.Context(), claimOf(key), fn)
			mu.Lock()
			errs[key] = err
			mu.Unlock()
		})
	}
	p.queued(len(fns))
	release()
	all.Wait()
	return errs
}

func TestSQLite_FunctionsThatFailDoNotHarmTheirNeighbours(t *testing.T) {
	own := errors.New("an error of the application")
	for _, c := range []struct {
		name string
		fail func(p place) txFunc
		want string
		left onlyonce.State
	}{
		{"returns an error", func(p place) txFunc {
			return func(ctx context.Context, tx *sql.Tx, r onlyonce.Record) (onlyonce.Settlement, error) {
				p.inserts("bad")(ctx, tx, r)
				return onlyonce.Settlement{State: onlyonce.StateFailed, Error: own.Error()}, own
			}
		}, own.Error(), onlyonce.StateFailed},
		{"panics", func(p place) txFunc {
			return func(ctx context.Context, tx *sql.Tx, r onlyonce.Record) (onlyonce.Settlement, error) {
				p.inserts("bad")(ctx, tx, r)
				panic("a bug")
			}
		}, "panic: a bug", ""},
		{"breaks a constraint", func(p place) txFunc {
			return func(ctx context.Context, tx *sql.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
				_, err := tx.ExecContext(ctx, "INSERT INTO own (name) VALUES (NULL)")
				return onlyonce.Settlement{}, err
			}
		}, "NOT NULL", ""},
		{"rolls the transaction back", func(p place) txFunc {
			return func(ctx context.Context, tx *sql.Tx, r onlyonce.Record) (onlyonce.Settlement, error) {
				p.inserts("bad")(ctx, tx, r)
				return completed, tx.Rollback()
			}
		}, "ended", ""},
		{"rolls the transaction back behind its back", func(p place) txFunc {
			return func(ctx context.Context, tx *sql.Tx, r onlyonce.Record) (onlyonce.Settlement, error) {
				p.inserts("bad")(ctx, tx, r)
				_, err := tx.ExecContext(ctx, "ROLLBACK")
				return completed, err
			}
		}, "ended", ""},
		{"is interrupted while it writes", func(p place) txFunc {
			return func(ctx context.Context, tx *sql.Tx, r onlyonce.Record) (onlyonce.Settlement, error) {
				ctx, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
				defer cancel()
				_, err := tx.ExecContext(ctx, `INSERT INTO own WITH RECURSIVE n (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n) SELECT 'bad' FROM n`)
				return onlyonce.Settlement{State: onlyonce.StateFailed, Error: "interrupted"}, err
			}
		}, "deadline exceeded", onlyonce.StateFailed},
		{"returns an error within a savepoint of its own", func(p place) txFunc {
			return func(ctx context.Context, tx *sql.Tx, r onlyonce.Record) (onlyonce.Settlement, error) {
				p.inserts("bad")(ctx, tx, r)
				_, err := tx.ExecContext(ctx, "SAVEPOINT onlyonce")
				return onlyonce.Settlement{}, errors.Join(err, own)
			}
		}, own.Error(), ""},
		{"leaves a query open", func(p place) txFunc {
			return func(ctx context.Context, tx *sql.Tx, r onlyonce.Record) (onlyonce.Settlement, error) {
				_, err := tx.QueryContext(ctx, "INSERT INTO own (name) VALUES ('bad'), ('bad') RETURNING name")
				return onlyonce.Settlement{}, errors.Join(err, own)
			}
		}, own.Error(), ""},
		{"makes the record of its own command", func(p place) txFunc {
			return func(ctx context.Context, tx *sql.Tx, r onlyonce.Record) (onlyonce.Settlement, error) {
				_, err := p.store.WithTx(tx).Claim(ctx, claimOf("bad"))
				return completed, err
			}
		}, "changed the record of its own command", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPlace(t)
			fns := map[string]txFunc{"bad": c.fail(p)}
			for i := range 8 {
				key := fmt.Sprint("good ", i)
				fns[key] = p.inserts(key)
			}
			errs := p.atOnce(fns)
			if err := errs["bad"]; err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the caller got %v, want %q", err, c.want)
			}
			p.wants("bad", 0, c.left)
			for i := range 8 {
				key := fmt.Sprint("good ", i)
				if err := errs[key]; err != nil {
					t.Errorf("%s: %v", key, err)
				}
				p.wants(key, 1, onlyonce.StateCompleted)
			}
		})
	}
}

// newPlaceWithParents has a table child with a deferred constraint, which the empty table parent
// breaks.
func newPlaceWithParents(t *testing.T) place {
	t.Helper()
	file := filepath.Join(t.TempDir(), "records.db")
	p := newPlaceIn(t, file)
	db, err := sql.Open("sqlite", sqliteDSN(file)+"&_pragma=foreign_keys(1)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	if _, err := db.Exec("CREATE TABLE parent (id integer PRIMARY KEY); CREATE TABLE child (id integer REFERENCES parent DEFERRABLE INITIALLY DEFERRED)"); err != nil {
		t.Fatal(err)
	}
	if p.store, err = sqlstore.Open(t.Context(), db, sqlstore.Config{PurgeEvery: sqlstore.NeverPurge}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.store.Close() })
	return p
}

// A deferred constraint is checked at the commit, which several functions share.
func TestSQLite_AFunctionWhoseCommitIsRejectedDoesNotHarmItsNeighbours(t *testing.T) {
	p := newPlaceWithParents(t)
	fns := map[string]txFunc{"bad": func(ctx context.Context, tx *sql.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
		_, err := tx.ExecContext(ctx, "INSERT INTO child (id) VALUES (1)")
		return completed, err
	}}
	for i := range 4 {
		key := fmt.Sprint("good ", i)
		fns[key] = p.inserts(key)
	}
	errs := p.atOnce(fns)
	if err := errs["bad"]; rejectedtx.In(err) == nil {
		t.Errorf("the caller got %v, want an error that is marked as a rejection", err)
	}
	p.wants("bad", 0, "")
	for i := range 4 {
		key := fmt.Sprint("good ", i)
		if err := errs[key]; err != nil {
			t.Errorf("%s: %v", key, err)
		}
		p.wants(key, 1, onlyonce.StateCompleted)
	}
}

// A function sees the rows of those before it in the transaction that they share.
func TestSQLite_AFunctionThatFailedBecauseOfRowsThatAreUndoneRunsAgain(t *testing.T) {
	taken := errors.New("the name is taken")
	for name, failure := range map[string]onlyonce.Settlement{
		"its failure is final":        {State: onlyonce.StateFailed, Final: true, Error: taken.Error(), Keep: time.Hour},
		"its failure is not recorded": {},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlaceWithParents(t)
			release := p.hold("holds the lock")
			var all sync.WaitGroup
			all.Go(func() {
				_, err := p.store.RunTx(t.Context(), claimOf("undone"), func(ctx context.Context, tx *sql.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
					_, err := tx.ExecContext(ctx, "INSERT INTO child (id) VALUES (1)")
					return completed, errors.Join(err, p.Insert(ctx, tx, "name"))
				})
				if rejectedtx.In(err) == nil {
					t.Errorf("the caller whose commit is rejected got %v", err)
				}
			})
			p.queued(1)
			runs := 0
			all.Go(func() {
				r, err := p.store.RunTx(t.Context(), claimOf("name"), func(ctx context.Context, tx *sql.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
					runs++
					var n int
					if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM own WHERE name = 'name'").Scan(&n); err != nil {
						return onlyonce.Settlement{}, err
					}
					if n > 0 {
						return failure, taken
					}
					return completed, p.Insert(ctx, tx, "name")
				})
				if err != nil || r.State != onlyonce.StateCompleted {
					t.Errorf("the other caller got %+v and error %v", r, err)
				}
			})
			p.queued(2)
			release()
			all.Wait()
			if runs != 2 {
				t.Errorf("the function ran %d times: it was not in the transaction of the other one", runs)
			}
			p.wants("undone", 0, "")
			p.wants("name", 1, onlyonce.StateCompleted)
		})
	}
}

func TestSQLite_AFunctionThatCommitsDoesNotMakeItsNeighboursRunTwice(t *testing.T) {
	for name, end := range map[string]func(*sql.Tx) error{
		"Commit": (*sql.Tx).Commit,
		"COMMIT and BEGIN": func(tx *sql.Tx) error {
			_, err := tx.Exec("COMMIT; BEGIN IMMEDIATE")
			return err
		},
		"COMMIT and a savepoint like the store's": func(tx *sql.Tx) error {
			_, err := tx.Exec("COMMIT; BEGIN IMMEDIATE; SAVEPOINT onlyonce")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) { neighboursOf(t, end) })
	}
}

// neighboursOf runs functions together, of which some end their transaction.
func neighboursOf(t *testing.T, end func(*sql.Tx) error) {
	p := newPlace(t)
	fns := make(map[string]txFunc)
	for i := range 16 {
		key := fmt.Sprint(i)
		fns[key] = func(ctx context.Context, tx *sql.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
			return onlyonce.Settlement{State: onlyonce.StateFailed}, p.Insert(ctx, tx, key) // the next claim would take it
		}
		if i%4 == 0 {
			fns[key] = func(ctx context.Context, tx *sql.Tx, r onlyonce.Record) (onlyonce.Settlement, error) {
				s, err := p.inserts(key)(ctx, tx, r)
				return s, errors.Join(err, end(tx))
			}
		}
	}
	errs := p.atOnce(fns)
	for i := range 16 {
		key := fmt.Sprint(i)
		if i%4 == 0 {
			if !errors.Is(errs[key], onlyonce.ErrUnknown) || !strings.Contains(errs[key].Error(), "ended") {
				t.Errorf("%s, which committed: %v", key, errs[key])
			}
			continue
		}
		if errs[key] != nil {
			t.Errorf("%s: %v", key, errs[key])
		}
		p.wants(key, 1, onlyonce.StateFailed)
	}
}

func TestSQLite_ACallerThatWaitsForTheLockLeavesWhenItsContextEnds(t *testing.T) {
	p := newPlace(t)
	held, err := p.store.Claim(t.Context(), claimOf("held"))
	if err != nil {
		t.Fatal(err)
	}
	h := onlyonce.Hold{ID: held.ID, Owner: held.Owner, Fence: held.Fence}
	release := p.hold("holds the lock")
	ctx, cancel := context.WithCancel(t.Context())
	calls := map[string]func() error{
		"claim":  func() error { _, err := p.store.Claim(ctx, claimOf("new")); return err },
		"renew":  func() error { return p.store.Renew(ctx, h, time.Hour, nil) },
		"settle": func() error { return p.store.Settle(ctx, h, completed) },
		"purge":  func() error { _, err := p.store.Purge(ctx, 10); return err },
		"run":    func() error { _, err := p.store.RunTx(ctx, claimOf("run"), p.inserts("run")); return err },
		"settle in a transaction": func() error {
			return p.store.SettleTx(ctx, h, func(ctx context.Context, tx *sql.Tx) (onlyonce.Settlement, error) { return completed, nil })
		},
	}
	ended := make(chan error, len(calls))
	for name, call := range calls {
		go func() {
			if err := call(); !errors.Is(err, context.Canceled) {
				ended <- fmt.Errorf("%s: %v", name, err)
				return
			}
			ended <- nil
		}()
	}
	p.queued(len(calls))
	cancel()
	for range calls { // while the lock is held
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	release()
	p.wants("new", 0, "")
	p.wants("run", 0, "")
	p.wants("held", 0, onlyonce.StateProcessing)
}

func TestSQLite_ReadsDoNotWaitForTheWriter(t *testing.T) {
	p := newPlace(t)
	done := claimOf("done")
	if _, err := p.store.RunTx(t.Context(), done, p.inserts("done")); err != nil {
		t.Fatal(err)
	}
	defer p.hold("holds the lock")()
	p.wants("done", 1, onlyonce.StateCompleted)
	again := claimOf("done")
	for name, ask := range map[string]func() (onlyonce.Record, error){
		"claim": func() (onlyonce.Record, error) { return p.store.Claim(t.Context(), again) },
		"run": func() (onlyonce.Record, error) {
			return p.store.RunTx(t.Context(), again, func(context.Context, *sql.Tx, onlyonce.Record) (onlyonce.Settlement, error) {
				panic("it ran")
			})
		},
	} {
		if r, err := ask(); err != nil || r.Owner != done.Owner || string(r.Result.Body) != string(answer.Body) {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
	for _, err := range p.store.List(t.Context(), onlyonce.Filter{}) {
		if err != nil {
			t.Error(err)
		}
	}
}

func TestSQLite_ADuplicateOfARunningFunctionIsRejectedAtOnce(t *testing.T) {
	p := newPlace(t)
	defer p.hold("holds the lock")()
	r, err := p.store.RunTx(t.Context(), claimOf("holds the lock"), func(context.Context, *sql.Tx, onlyonce.Record) (onlyonce.Settlement, error) {
		panic("it ran")
	})
	if err != nil || r.State != onlyonce.StateProcessing || r.LeaseLeft <= 0 || r.ID.Key != "holds the lock" {
		t.Errorf("the duplicate got %v, %v", r, err)
	}
}

func TestSQLite_AFunctionThatCallsItsOwnStoreGetsAnError(t *testing.T) {
	p := newPlace(t)
	_, err := p.store.RunTx(t.Context(), claimOf("outer"), func(ctx context.Context, tx *sql.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
		_, err := p.store.Claim(ctx, claimOf("inner"))
		return onlyonce.Settlement{}, err
	})
	if err == nil || !strings.Contains(err.Error(), "WithTx") {
		t.Errorf("the caller got %v", err)
	}
	p.wants("outer", 0, "")
	_, err = p.store.RunTx(t.Context(), claimOf("outer"), func(ctx context.Context, tx *sql.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
		for i := range 3 {
			if _, err := p.store.WithTx(tx).Claim(ctx, claimOf(fmt.Sprint("inner ", i))); err != nil {
				return onlyonce.Settlement{}, err
			}
		}
		return completed, nil
	})
	if err != nil {
		t.Errorf("with WithTx: %v", err)
	}
	p.wants("outer", 0, onlyonce.StateCompleted)
	p.wants("inner 2", 0, onlyonce.StateProcessing)
}

func TestSQLite_LeavesNoGoroutineBehind(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Run("a store that was used", func(t *testing.T) {
		p := newPlace(t)
		p.atOnce(map[string]txFunc{"a": p.inserts("a"), "b": p.inserts("b"), "c": func(context.Context, *sql.Tx, onlyonce.Record) (onlyonce.Settlement, error) { panic("a bug") }})
	})
	eventually(t, fmt.Sprintf("there are no more than %d goroutines", before), func() bool { return runtime.NumGoroutine() <= before })
}
