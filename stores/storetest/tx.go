package storetest

import (
	"context"
	"errors"
	"runtime"
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

// inserts returns a function that adds a row and ends as told.
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

// mustRun runs a command, and wants it to be the claim's and its record what Lookup
// then shows.
func (t *txTest[TX]) mustRun(c onlyonce.Claim, fn txFunc[TX]) onlyonce.Record {
	t.Helper()
	r, err := t.Store.RunTx(t.ctx, c, fn)
	if err != nil {
		t.Fatalf("run: %v", err)
	}
	if r.Owner != c.Owner {
		t.Fatalf("run was not given the command: the record is %s", describe(r))
	}
	t.same(t.lookup(c.ID), r)
	return r
}

// mustNotRun asks to run a command, and wants it to stay what it is.
func (t *txTest[TX]) mustNotRun(c onlyonce.Claim) {
	t.Helper()
	was := t.snap(c.ID)
	r, err := t.Store.RunTx(t.ctx, c, t.never())
	if err != nil {
		t.Fatalf("run: %v", err)
	}
	t.same(was.Record, r)
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

// mustStillWork wants the store to go on as if nothing had happened.
func (t *txTest[TX]) mustStillWork() {
	t.Helper()
	key := "still " + newOwner()
	t.mustRun(claimOf(key), t.inserts(key, completed("made"), nil))
	t.rows(key, 1)
	t.complete(claimOf(key+" by lease"), completed("made"))
}

// panicking runs f on a goroutine of its own and returns what it panicked with;
// exited is true if it ended by runtime.Goexit.
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

// struck wants a call to end as the disaster in it does.
func (t *txTest[TX]) struck(d disaster, call func()) {
	t.Helper()
	if value, exited := panicking(call); value != d.value || exited != (d.value == nil) {
		t.Errorf("the call panicked with %v (or ended its goroutine: %v), want %v", value, exited, d.value)
	}
}

// awaitAgreement waits until rows and record say the same, which a store may bring about
// after it has returned an error.
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
