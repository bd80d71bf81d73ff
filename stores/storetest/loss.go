package storetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/onlyonce-go/onlyonce"
)

var errOwn = errors.New("an error of the application")

func lossRules[TX any]() []txRule[TX] {
	type T = *txTest[TX]
	rules := []txRule[TX]{
		{"an error rolls the rows back and records its settlement alone", func(t T) {
			for i, s := range endings {
				c, row := claimOf(fmt.Sprint(i)), fmt.Sprint(i)
				t.failsWith(errOwn, c, t.inserts(row, s, errOwn))
				t.rows(row, 0)
				r := t.lookup(c.ID)
				t.same(onlyonce.Record{
					ID: c.ID, State: s.State, Fingerprint: c.Fingerprint, Owner: c.Owner, Attempt: 1, Fence: r.Fence,
					Result: s.Result, Error: s.Error, Final: s.Final, CreatedAt: r.CreatedAt, SettledAt: r.SettledAt,
				}, r)
				t.sameEnd("KeepLeft", s.Keep, r.KeepLeft, 0)
			}
		}},
		{"an error without a settlement leaves nothing", func(t T) {
			t.failsWith(errOwn, claimOf("k"), t.inserts("k", onlyonce.Settlement{}, errOwn))
			t.rows("k", 0)
			t.mustBeAbsent(idOf("k"))
			t.mustRun(claimOf("k"), t.inserts("k", completed("made"), nil))
			t.rows("k", 1)
		}},
		{"an error without a settlement leaves an earlier attempt's record as it was", func(t T) {
			for _, stand := range recordStates {
				if stand.name != "failed" && stand.name != "unknown" && stand.name != "lapsed" {
					continue
				}
				c := claimOf(stand.name)
				stand.reach(t.storeTest, c)
				was := t.snap(c.ID)
				t.failsWith(errOwn, greedy(c), t.inserts(stand.name, onlyonce.Settlement{}, errOwn))
				t.rows(stand.name, 0)
				t.unchanged(was)
			}
		}},
		{"a retry that fails again is recorded as that attempt", func(t T) {
			c := claimOf("k")
			was := t.complete(c, failed("no stock"))
			t.failsWith(errOwn, greedy(c), t.inserts("k", failed("no money"), errOwn))
			t.rows("k", 0)
			if r := t.lookup(c.ID); r.Attempt != 2 || r.Error != "no money" || r.Fence <= was.Fence {
				t.Errorf("the record is %s with error %q", describe(r), r.Error)
			}
		}},
		{"a function that rolls the transaction back itself completes nothing", func(t T) {
			if t.Rollback == nil {
				t.Skip("a function of this store can't end its transaction")
			}
			t.meddles(t.Rollback)
			t.rows("k", 0)
		}},
		{"a function that commits the transaction itself is told so", func(t T) {
			if t.Commit == nil {
				t.Skip("a function of this store can't end its transaction")
			}
			t.meddles(t.Commit)
		}},
	}
	for _, d := range disasters {
		rules = append(rules,
			txRule[TX]{"a function that " + d.name + " leaves nothing", func(t T) {
				c := claimOf("k")
				t.struck(d, func() { t.Store.RunTx(t.ctx, c, t.strikes("k", d)) })
				t.rows("k", 0)
				t.mustBeAbsent(c.ID)
				t.mustRun(newCaller(c), t.inserts("k", completed("made"), nil))
				t.rows("k", 1)
				t.mustStillWork()
			}},
			txRule[TX]{"a retry that " + d.name + " leaves the failed attempt's record as it was", func(t T) {
				c := claimOf("k")
				t.complete(c, failed("no stock"))
				was := t.snap(c.ID)
				t.struck(d, func() { t.Store.RunTx(t.ctx, greedy(c), t.strikes("k", d)) })
				t.rows("k", 0)
				t.unchanged(was)
				t.mustStillWork()
			}})
	}
	return rules
}

// strikes returns a function that adds a row and then meets a disaster.
func (t *txTest[TX]) strikes(row string, d disaster) txFunc[TX] {
	return func(ctx context.Context, tx TX, r onlyonce.Record) (onlyonce.Settlement, error) {
		s, err := t.inserts(row, completed("made"), nil)(ctx, tx, r)
		d.strike()
		return s, err
	}
}

// failsWith wants a run to return the function's error as it is.
func (t *txTest[TX]) failsWith(want error, c onlyonce.Claim, fn txFunc[TX]) {
	t.Helper()
	if _, err := t.Store.RunTx(t.ctx, c, fn); err != want {
		t.Errorf("run returned the error %v, want %v itself", err, want)
	}
}

// meddles runs a function that ends its transaction, and wants an error, no
// result without its rows, and the store to go on.
func (t *txTest[TX]) meddles(end func(TX) error) {
	t.Helper()
	c := claimOf("k")
	if _, err := t.Store.RunTx(t.ctx, c, func(ctx context.Context, tx TX, r onlyonce.Record) (onlyonce.Settlement, error) {
		s, err := t.inserts("k", completed("made"), nil)(ctx, tx, r)
		_ = end(tx) // the store may reject it
		return s, err
	}); err == nil {
		t.Error("run returned no error")
	}
	n, err := t.Count(t.ctx, "k")
	if err != nil {
		t.Fatalf("count: %v", err)
	}
	if r, err := t.store.Lookup(t.ctx, c.ID); err == nil && r.State == onlyonce.StateCompleted && n == 0 {
		t.Errorf("the record is %s, but the rows are gone", describe(r))
	}
	t.mustStillWork()
}
