package storetest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

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
				answers := make([]string, crowd)
				together(crowd, func(i int) { answers[i] = t.askTx(key) })
				if len(slices.Compact(answers)) != 1 {
					t.Errorf("the answers differ: %x", answers)
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
		{"a caller who goes away harms none beside it", func(t T) {
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
					t.Errorf("the lease was given: %v; the transaction ran: %v (error %v)", held, ran, runErr)
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

// commits runs a command and wants it done.
func (t *txTest[TX]) commits(key string) {
	c := claimOf(key)
	r, err := t.Store.RunTx(t.ctx, c, t.inserts(key, completed(key), nil))
	if err != nil || r.Owner != c.Owner || r.State != onlyonce.StateCompleted || string(r.Result.Body) != key {
		t.Errorf("run of %q got %s and error %v", key, describe(r), err)
	}
}

// beside lets every sixth of a crowd do something bad, and wants the others to
// commit and nothing to be left of the bad ones' rows.
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

// askTx runs a command until it is completed, and returns its answer.
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
	t.Errorf("%q was never answered", key)
	return ""
}
