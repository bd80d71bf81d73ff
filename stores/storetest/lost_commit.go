package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// A LossyTx is a store with a connection that a test can break at a commit.
type LossyTx[TX any] struct {
	Tx[TX]

	// Elsewhere is another store on the same records, whose connections do not
	// break.
	Elsewhere onlyonce.Store

	// LoseCommit breaks the connection when the store next commits a function's
	// transaction. If arrives is true, the connection breaks after the commit;
	// otherwise, it breaks before, so that the database rolls the transaction
	// back. meanwhile is called when the connection is broken and before the
	// store notices.
	LoseCommit func(arrives bool, meanwhile func())
}

// RunLostCommits tests the results of a store for a transaction whose commit got
// no response: nil only if it was committed, an error that is
// onlyonce.ErrInDoubt if the store can't know, and any other error only if it
// was rolled back. Each call of open must return a store without records and an
// empty table.
func RunLostCommits[TX any](t *testing.T, open func(t *testing.T) LossyTx[TX]) {
	for _, r := range lostCommitRules[TX]() {
		t.Run(r.name, func(t *testing.T) {
			l := open(t)
			r.check(&lossyTrial[TX]{&txTest[TX]{newStoreTest(t, l.Store), l.Tx}, l})
		})
	}
}

type lossyRule[TX any] struct {
	name  string
	check func(t *lossyTrial[TX])
}

// A lossyTrial is one rule's test of one store that loses a commit.
type lossyTrial[TX any] struct {
	*txTest[TX]
	lossy LossyTx[TX]
}

func lostCommitRules[TX any]() []lossyRule[TX] {
	type T = *lossyTrial[TX]
	ends := []onlyonce.Settlement{completed("made"), failed("no stock"), failedForGood("no such article"), unknown("no response"), {}}
	return []lossyRule[TX]{
		{"a settlement that was committed is found", func(t T) {
			for i, s := range ends {
				h := holdOf(t.mustClaim(claimOf(fmt.Sprint(i))))
				t.loseCommit(true, nil)
				t.knows(true, t.settleTx(h, s), s)
				t.stands(h.ID, s)
			}
		}},
		{"a settlement that was rolled back leaves the claim as it is", func(t T) {
			for i, s := range ends {
				h := holdOf(t.mustClaim(claimOf(fmt.Sprint(i))))
				was := t.snap(h.ID)
				t.loseCommit(false, nil)
				t.knows(false, t.settleTx(h, s), s)
				t.unchanged(was)
			}
		}},
		{"a settlement is not taken for another one of the same hold", func(t T) {
			for i, s := range ends {
				for j, other := range ends {
					h := holdOf(t.mustClaim(claimOf(fmt.Sprint(i, " ", j))))
					t.loseCommit(false, func() { t.settleElsewhere(h, other) })
					t.truthful(t.settleTx(h, s), h.ID.Key)
					t.rows(h.ID.Key, 0)
				}
			}
		}},
		{"a settlement is not taken for another transaction of the same hold", func(t T) {
			in, ok := t.lossy.Elsewhere.(onlyonce.TxStore[TX])
			if !ok {
				t.Skip("the other store has no transactions")
			}
			for i, s := range ends {
				h := holdOf(t.mustClaim(claimOf(fmt.Sprint(i))))
				t.loseCommit(false, func() {
					if err := in.SettleTx(t.ctx, h, t.settling("other", s, nil)); err != nil {
						t.Errorf("settle elsewhere: %v", err)
					}
				})
				t.truthful(t.settleTx(h, s), h.ID.Key)
				t.rows(h.ID.Key, 0)
			}
			t.rows("other", len(ends))
		}},
		{"a settlement is not taken for that of the attempt which took over", func(t T) {
			for i, s := range ends {
				c := claimOf(fmt.Sprint(i))
				h := holdOf(t.awaitLapse(holdOf(t.mustClaim(c))))
				t.loseCommit(false, func() { t.doneElsewhere(greedy(c), s) })
				t.truthful(t.settleTx(h, s), c.ID.Key)
				t.rows(c.ID.Key, 0)
			}
		}},
		{"a settlement that was committed is not denied because another attempt followed", func(t T) {
			for i, s := range ends {
				c := claimOf(fmt.Sprint(i))
				h := holdOf(t.mustClaim(c))
				t.loseCommit(true, func() {
					if greedy(c).Takes(onlyonce.Record{State: s.State, Final: s.Final, Fingerprint: c.Fingerprint}) || s.State == "" {
						t.doneElsewhere(greedy(c), completed("by the next attempt"))
					}
				})
				t.truthful(t.settleTx(h, s), c.ID.Key)
				t.rows(c.ID.Key, 1)
			}
		}},
		{"a run that was committed is found", func(t T) {
			for i, s := range ends {
				c := claimOf(fmt.Sprint(i))
				t.loseCommit(true, nil)
				r, err := t.run(c, s)
				t.knows(true, err, s)
				if t.stands(c.ID, s); err == nil && s.State != "" {
					t.wantSame(t.lookup(c.ID), r)
				}
			}
		}},
		{"a run that was rolled back leaves nothing", func(t T) {
			for i, s := range ends {
				c := claimOf(fmt.Sprint(i))
				t.loseCommit(false, nil)
				_, err := t.run(c, s)
				t.knows(false, err, s)
				t.mustBeAbsent(c.ID)
				t.mustRun(newCaller(c), t.inserts("again", completed("made"), nil))
			}
		}},
		{"a run is not taken for another attempt's", func(t T) {
			for i, s := range ends {
				for j, other := range ends {
					c := claimOf(fmt.Sprint(i, " ", j))
					t.loseCommit(false, func() { t.doneElsewhere(newCaller(c), other) })
					_, err := t.run(c, s)
					t.truthful(err, c.ID.Key)
					t.rows(c.ID.Key, 0)
				}
			}
		}},
		{"a run that was committed is not denied because another attempt followed", func(t T) {
			for i, s := range ends {
				c := claimOf(fmt.Sprint(i))
				t.loseCommit(true, func() {
					if greedy(c).Takes(onlyonce.Record{State: s.State, Final: s.Final, Fingerprint: c.Fingerprint}) || s.State == "" {
						t.doneElsewhere(greedy(c), completed("by the next attempt"))
					}
				})
				_, err := t.run(c, s)
				t.truthful(err, c.ID.Key)
				t.rows(c.ID.Key, 1)
			}
		}},
		{"a retry that was rolled back leaves the record of the attempt before", func(t T) {
			for i, s := range ends {
				c := claimOf(fmt.Sprint(i))
				t.complete(c, failed("no stock"))
				was := t.snap(c.ID)
				t.loseCommit(false, nil)
				_, err := t.run(greedy(c), s)
				t.truthful(err, c.ID.Key)
				t.rows(c.ID.Key, 0)
				t.unchanged(was)
			}
		}},
	}
}

// loseCommit breaks the next commit, and wants meanwhile to be called.
func (t *lossyTrial[TX]) loseCommit(arrives bool, meanwhile func()) {
	var happened atomic.Bool
	t.lossy.LoseCommit(arrives, func() {
		if happened.Store(true); meanwhile != nil {
			meanwhile()
		}
	})
	t.Cleanup(func() {
		if !happened.Load() {
			t.Error("a connection was not broken")
		}
	})
}

func (t *lossyTrial[TX]) settleTx(h onlyonce.Hold, s onlyonce.Settlement) error {
	return t.Store.SettleTx(t.ctx, h, t.settling(h.ID.Key, s, nil))
}

func (t *lossyTrial[TX]) run(c onlyonce.Claim, s onlyonce.Settlement) (onlyonce.Record, error) {
	return t.Store.RunTx(t.ctx, c, t.inserts(c.ID.Key, s, nil))
}

// truthful wants the result of a call to agree with the rows.
func (t *lossyTrial[TX]) truthful(err error, row string) {
	t.Helper()
	switch {
	case err == nil:
		t.rows(row, 1)
	case !errors.Is(err, onlyonce.ErrInDoubt):
		t.rows(row, 0)
	}
}

// knows wants the store to know the outcome of the only transaction. It need not know
// that of a release, which leaves no record.
func (t *lossyTrial[TX]) knows(committed bool, err error, s onlyonce.Settlement) {
	t.Helper()
	if s.State == "" && errors.Is(err, onlyonce.ErrUnknown) {
		return
	}
	if committed != (err == nil) || errors.Is(err, onlyonce.ErrUnknown) || errors.Is(err, onlyonce.ErrLost) {
		t.Errorf("after a commit that arrived (%v), the store returned %v", committed, err)
	}
}

// stands wants the row of a command, and its record, to exist.
func (t *lossyTrial[TX]) stands(id onlyonce.ID, s onlyonce.Settlement) {
	t.Helper()
	t.rows(id.Key, 1)
	if s.State == "" {
		t.mustBeAbsent(id)
	} else if r := t.lookup(id); r.State != s.State {
		t.Errorf("the record is %s, want state %s", describe(r), s.State)
	}
}

func (t *lossyTrial[TX]) settleElsewhere(h onlyonce.Hold, s onlyonce.Settlement) {
	t.Helper()
	if err := t.lossy.Elsewhere.Settle(t.ctx, h, s); err != nil {
		t.Errorf("settle elsewhere: %v", err)
	}
}

// doneElsewhere runs an attempt in another process, for which a lease may lapse a little later.
func (t *lossyTrial[TX]) doneElsewhere(c onlyonce.Claim, s onlyonce.Settlement) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	r, err := t.lossy.Elsewhere.Claim(ctx, c)
	for err == nil && r.Owner != c.Owner && r.State == onlyonce.StateProcessing {
		time.Sleep(poll)
		r, err = t.lossy.Elsewhere.Claim(ctx, c)
	}
	if err != nil || r.Owner != c.Owner {
		t.Errorf("claim elsewhere: %s, %v", describe(r), err)
		return
	}
	t.settleElsewhere(holdOf(r), s)
}
