package storetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// A Tx is a store whose functions run in transactions of its database, with a
// table of the caller in that database.
type Tx[TX any] struct {
	Store onlyonce.TxStore[TX]

	Insert func(ctx context.Context, tx TX, row string) error       // adds a row to the table
	Count  func(ctx context.Context, row string) (n int, err error) // counts the committed rows with that value; it must not wait for a transaction

	Rollback, Commit func(tx TX) error // end the transaction, which a function must not do; nil: a function can't
}

// RunTx tests that the stores returned by open follow the rules of
// onlyonce.TxStore. Each call of open must return a store without records and
// an empty table.
func RunTx[TX any](t *testing.T, open func(t *testing.T) Tx[TX]) {
	for _, g := range []struct {
		name  string
		rules []txRule[TX]
	}{
		{"run", runRules[TX]()},
		{"run and lose", lossRules[TX]()},
		{"run together", crowdRules[TX]()},
		{"settle", settleTxRules[TX]()},
	} {
		t.Run(g.name, func(t *testing.T) {
			for _, r := range g.rules {
				t.Run(r.name, func(t *testing.T) {
					tx := open(t)
					r.check(&txTest[TX]{newStoreTest(t, tx.Store), tx})
				})
			}
		})
	}
}

type txRule[TX any] struct {
	name  string
	check func(t *txTest[TX])
}

// A txTest is one rule's test of one store with transactions.
type txTest[TX any] struct {
	*storeTest
	Tx[TX]
}

type txFunc[TX any] = func(context.Context, TX, onlyonce.Record) (onlyonce.Settlement, error)

// cause waits for the end of a context that has been canceled, and returns its cause.
func (t *txTest[TX]) cause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(patience):
		return errors.New("the context did not end")
	}
}

// inserts returns a function that adds a row and then returns s and err.
func (t *txTest[TX]) inserts(row string, s onlyonce.Settlement, err error) txFunc[TX] {
	return func(ctx context.Context, tx TX, _ onlyonce.Record) (onlyonce.Settlement, error) {
		if err := t.Insert(ctx, tx, row); err != nil {
			t.Errorf("insert: %v", err)
			return onlyonce.Settlement{}, err
		}
		return s, err
	}
}

// never returns a function that must not run.
func (t *txTest[TX]) never() txFunc[TX] {
	return func(context.Context, TX, onlyonce.Record) (onlyonce.Settlement, error) {
		t.Error("the function ran")
		return onlyonce.Settlement{}, nil
	}
}

// mustRun runs a command, and wants the claim to get it and Lookup to return the same
// record afterwards.
func (t *txTest[TX]) mustRun(c onlyonce.Claim, fn txFunc[TX]) onlyonce.Record {
	t.Helper()
	r, err := t.Store.RunTx(t.ctx, c, fn)
	if err != nil {
		t.Fatalf("run: %v", err)
	}
	if r.Owner != c.Owner {
		t.Fatalf("run was not granted the command: the record is %s", describe(r))
	}
	t.wantSame(t.lookup(c.ID), r)
	return r
}

// mustNotRun tries to run a command, and wants it to stay unchanged.
func (t *txTest[TX]) mustNotRun(c onlyonce.Claim) {
	t.Helper()
	was := t.snap(c.ID)
	r, err := t.Store.RunTx(t.ctx, c, t.never())
	if err != nil {
		t.Fatalf("run: %v", err)
	}
	t.wantSame(was.Record, r)
	t.unchanged(was)
}

func (t *txTest[TX]) rows(row string, want int) {
	t.Helper()
	n, err := t.Count(t.ctx, row)
	if err != nil {
		t.Fatalf("count: %v", err)
	}
	if n != want {
		t.Errorf("there are %d rows %q, want %d", n, row, want)
	}
}

// mustStillWork wants the store to continue to work.
func (t *txTest[TX]) mustStillWork() {
	t.Helper()
	key := "still " + newOwner()
	t.mustRun(claimOf(key), t.inserts(key, completed("made"), nil))
	t.rows(key, 1)
	t.complete(claimOf(key+" by lease"), completed("made"))
}

// panicking runs f on a separate goroutine and returns the value of its panic; exited is
// true if it ended by runtime.Goexit.
func panicking(f func()) (value any, exited bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		returned := false
		defer func() {
			value = recover()
			exited = !returned && value == nil
		}()
		f()
		returned = true
	}()
	<-done
	return value, exited
}

// A disaster is a way for a function to end without returning.
type disaster struct {
	name   string
	strike func()
	value  any
}

var disasters = []disaster{
	{"panics", func() { panic(disasterValue) }, disasterValue},
	{"ends its goroutine", runtime.Goexit, nil},
}

const disasterValue = "a bug in the application"

// struck wants a call to end in the same way as the disaster in it.
func (t *txTest[TX]) struck(d disaster, call func()) {
	t.Helper()
	if value, exited := panicking(call); value != d.value || exited != (d.value == nil) {
		t.Errorf("the call panicked with %v (or ended its goroutine: %v), want %v", value, exited, d.value)
	}
}

// awaitAgreement waits until rows and record agree, which may happen only after the store
// has returned an error.
func (t *txTest[TX]) awaitAgreement(id onlyonce.ID, row string) {
	t.Helper()
	var rows int
	var state onlyonce.State
	t.until("rows and record agree", func() bool {
		n, err := t.Count(t.ctx, row)
		if err != nil {
			t.Fatalf("count: %v", err)
		}
		r, _ := t.store.Lookup(t.ctx, id)
		rows, state = n, r.State
		return (rows == 1) == (state == onlyonce.StateCompleted)
	})
	if rows > 1 {
		t.Errorf("there are %d rows, and the record is %q", rows, state)
	}
}

const crowd = 24

func crowdRules[TX any]() []txRule[TX] {
	type T = *txTest[TX]
	rules := []txRule[TX]{
		{"many commands at once are all committed", func(t T) {
			together(crowd, func(i int) {
				for n := range 4 {
					t.commits(fmt.Sprint(i, n))
				}
			})
			for i := range crowd {
				for n := range 4 {
					t.rows(fmt.Sprint(i, n), 1)
				}
			}
		}},
		{"one command asked for by many at once is committed once", func(t T) {
			for n := range 5 {
				key := fmt.Sprint(n)
				results := make([]string, crowd)
				together(crowd, func(i int) { results[i] = t.askTx(key) })
				if len(slices.Compact(results)) != 1 {
					t.Errorf("the results differ: %x", results)
				}
				t.rows(key, 1)
			}
		}},
		{"a retry by many at once is committed once", func(t T) {
			for n := range 5 {
				key := fmt.Sprint(n)
				t.complete(claimOf(key), failed("no stock"))
				together(crowd, func(int) { t.askTx(key) })
				t.rows(key, 1)
				if r := t.lookup(idOf(key)); r.Attempt != 2 {
					t.Errorf("it took %d attempts, want 2", r.Attempt)
				}
			}
		}},
		{"a function that fails harms none beside it", func(t T) {
			t.beside(func(row string) {
				t.failsWith(errOwn, claimOf(row), t.inserts(row, failed("no stock"), errOwn))
			})
		}},
		{"a function that fails without a settlement harms none beside it", func(t T) {
			t.beside(func(row string) {
				t.failsWith(errOwn, claimOf(row), t.inserts(row, onlyonce.Settlement{}, errOwn))
			})
		}},
		{"a caller that leaves harms no caller beside it", func(t T) {
			t.beside(func(row string) {
				ctx, cancel := context.WithCancel(t.ctx)
				t.Store.RunTx(ctx, claimOf(row), func(context.Context, TX, onlyonce.Record) (onlyonce.Settlement, error) {
					cancel()
					return onlyonce.Settlement{}, errOwn
				})
			})
		}},
		{"a transaction and a lease on one command do not both have it", func(t T) {
			for i := range 20 {
				key := fmt.Sprint(i)
				c := claimOf(key)
				var leased onlyonce.Record
				var leaseErr, runErr error
				var run onlyonce.Record
				mine := claimOf(key)
				together(2, func(i int) {
					if i == 0 {
						leased, leaseErr = t.store.Claim(t.ctx, c)
					} else {
						run, runErr = t.Store.RunTx(t.ctx, mine, t.inserts(key, completed("made"), nil))
					}
				})
				if leaseErr != nil {
					t.Fatalf("claim: %v", leaseErr)
				}
				held, ran := leased.Owner == c.Owner, runErr == nil && run.Owner == mine.Owner
				if held == ran {
					t.Errorf("the lease was granted: %v; the transaction ran: %v (error %v)", held, ran, runErr)
				}
				t.rows(key, map[bool]int{true: 1}[ran])
			}
		}},
	}
	for _, d := range disasters {
		rules = append(rules, txRule[TX]{"a function that " + d.name + " harms none beside it", func(t T) {
			t.beside(func(row string) {
				t.struck(d, func() { t.Store.RunTx(t.ctx, claimOf(row), t.strikes(row, d)) })
			})
		}})
	}
	return rules
}

// commits runs a command and wants it to be committed.
func (t *txTest[TX]) commits(key string) {
	c := claimOf(key)
	r, err := t.Store.RunTx(t.ctx, c, t.inserts(key, completed(key), nil))
	if err != nil || r.Owner != c.Owner || r.State != onlyonce.StateCompleted || string(r.Result.Body) != key {
		t.Errorf("run of %q got %s and error %v", key, describe(r), err)
	}
}

// beside lets every sixth of a crowd of callers misbehave, and wants the others to
// commit and no rows of the misbehaving ones to be left.
func (t *txTest[TX]) beside(bad func(row string)) {
	t.Helper()
	together(crowd, func(i int) {
		for n := range 4 {
			if (i+n)%6 == 0 {
				bad(fmt.Sprint(i, n))
			} else {
				t.commits(fmt.Sprint(i, n))
			}
		}
	})
	for i := range crowd {
		for n := range 4 {
			t.rows(fmt.Sprint(i, n), map[bool]int{true: 0, false: 1}[(i+n)%6 == 0])
		}
	}
	t.mustStillWork()
}

// askTx runs a command until it is completed, and returns its result.
func (t *txTest[TX]) askTx(key string) string {
	for ; t.ctx.Err() == nil; time.Sleep(poll) {
		c := greedy(claimOf(key))
		r, err := t.Store.RunTx(t.ctx, c, t.inserts(key, completed(c.Owner), nil))
		if err != nil {
			t.Errorf("run: %v", err)
			return ""
		}
		if r.State == onlyonce.StateCompleted {
			return string(r.Result.Body)
		}
	}
	t.Errorf("%q was never completed", key)
	return ""
}
