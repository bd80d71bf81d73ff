package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/onlyonce-go/onlyonce"
)

func settleTxRules[TX any]() []txRule[TX] {
	type T = *txTest[TX]
	rules := []txRule[TX]{
		{"rows and settlement are committed together", func(t T) {
			for i, s := range endings {
				key := fmt.Sprint(i)
				was := t.mustClaim(claimOf(key))
				t.renew(holdOf(was), long, steps{"charge": []byte("ch_1")})
				t.settles(nil, holdOf(was), key, s, nil)
				t.rows(key, 1)
				r := t.lookup(was.ID)
				want := was
				want.State, want.Result, want.Error, want.Final = s.State, s.Result, s.Error, s.Final
				want.SettledAt, want.Steps = r.SettledAt, steps{"charge": []byte("ch_1")}
				t.wantSame(want, r)
				t.sameEnd("KeepLeft", s.Keep, r.KeepLeft, 0)
			}
		}},
		{"nothing of an earlier failure is left in the settlement", func(t T) {
			c := claimOf("k")
			t.complete(c, failed("no stock"))
			t.settles(nil, holdOf(t.mustClaim(greedy(c))), "k", completed("made"), nil)
			if r := t.lookup(c.ID); r.State != onlyonce.StateCompleted || r.Attempt != 2 || r.Error != "" {
				t.Errorf("the record is %s with error %q", describe(r), r.Error)
			}
		}},
		{"a result of 1 MiB is committed whole", func(t T) {
			s := completed(string(bytes.Repeat(everyByte(), 4096)))
			t.settles(nil, holdOf(t.mustClaim(claimOf("k"))), "k", s, nil)
			t.rows("k", 1)
			t.sameResult(s.Result, t.lookup(idOf("k")).Result)
		}},
		{"a result with a keep is committed with the rows, and only its ID is left in the end", func(t T) {
			h, s := holdOf(t.mustClaim(claimOf("k"))), completed("made")
			s.Result.Keep = short
			t.settles(nil, h, "k", s, nil)
			t.awaitForgetting(h.ID)
			t.mustNotRun(greedy(claimOf("k")))
			t.rows("k", 1)
		}},
		{"a release commits the rows and leaves no record", func(t T) {
			t.settles(nil, holdOf(t.mustClaim(claimOf("k"))), "k", onlyonce.Settlement{}, nil)
			t.rows("k", 1)
			t.mustBeAbsent(idOf("k"))
		}},
		{"no reader sees rows or result before the commit", func(t T) {
			h := holdOf(t.mustClaim(claimOf("k")))
			err := t.Store.SettleTx(t.ctx, h, func(ctx context.Context, tx TX) (onlyonce.Settlement, error) {
				s, err := t.inserts("k", completed("made"), nil)(ctx, tx, onlyonce.Record{})
				t.rows("k", 0)
				if r := t.lookup(h.ID); r.State != onlyonce.StateProcessing {
					t.Errorf("the record is %s before the commit", describe(r))
				}
				return s, err
			})
			if err != nil {
				t.Fatalf("settle: %v", err)
			}
			t.rows("k", 1)
		}},
		{"an error rolls the rows back and records its settlement alone", func(t T) {
			for i, s := range endings {
				key := fmt.Sprint(i)
				h := holdOf(t.mustClaim(claimOf(key)))
				t.settles(errOwn, h, key, s, errOwn)
				t.rows(key, 0)
				if r := t.lookup(h.ID); r.State != s.State || r.Error != s.Error || r.Final != s.Final {
					t.Errorf("the record is %s with error %q, want state %s", describe(r), r.Error, s.State)
				}
			}
		}},
		{"an error without a settlement leaves the claim as it is", func(t T) {
			h := holdOf(t.mustClaim(claimOf("k")))
			was := t.snap(h.ID)
			t.settles(errOwn, h, "k", onlyonce.Settlement{}, errOwn)
			t.rows("k", 0)
			t.unchanged(was)
			t.settles(nil, h, "k", completed("made"), nil)
			t.rows("k", 1)
		}},
		{"a settlement with which no attempt can end rolls back and leaves the claim as it is", func(t T) {
			h := holdOf(t.mustClaim(claimOf("k")))
			was := t.snap(h.ID)
			for _, s := range impossible {
				for _, own := range []error{nil, errOwn} {
					err := t.Store.SettleTx(t.ctx, h, t.settling("k", s, own))
					t.rejected("settle", s, err)
					if own != nil {
						t.wantErr(own, "settle", err)
					}
				}
			}
			t.rows("k", 0)
			t.unchanged(was)
			t.settles(nil, h, "k", completed("made"), nil)
			t.rows("k", 1)
		}},
		{"a lapsed lease can be settled unless another claim took over", func(t T) {
			h := holdOf(t.awaitLapse(holdOf(t.mustClaim(claimOf("k")))))
			t.settles(nil, h, "k", completed("late but fine"), nil)
			t.rows("k", 1)
		}},
		{"a hold that was taken over is lost, and its rows are rolled back", func(t T) {
			c := claimOf("k")
			h := holdOf(t.awaitLapse(holdOf(t.mustClaim(c))))
			t.mustClaim(greedy(c))
			t.lostTx(h)
		}},
		{"a hold that was taken over is lost even to an error", func(t T) {
			c := claimOf("k")
			h := holdOf(t.awaitLapse(holdOf(t.mustClaim(c))))
			t.mustClaim(greedy(c))
			was := t.snap(h.ID)
			if err := t.Store.SettleTx(t.ctx, h, t.settling("k", failed("too late"), errOwn)); !errors.Is(err, onlyonce.ErrLost) && !errors.Is(err, errOwn) {
				t.Errorf("settle returned %v, want ErrLost or the function's error", err)
			}
			t.rows("k", 0)
			t.unchanged(was)
		}},
		{"a settlement and a claim that takes the command over meanwhile do not both happen", func(t T) {
			c := claimOf("k")
			h := holdOf(t.awaitLapse(holdOf(t.mustClaim(c))))
			other, fn := greedy(c), t.settling("k", completed("made"), nil)
			taken := false
			err := t.Store.SettleTx(t.ctx, h, func(ctx context.Context, tx TX) (onlyonce.Settlement, error) {
				taken = t.claimMeanwhile(other) || taken
				return fn(ctx, tx)
			})
			if err != nil {
				t.wantErr(onlyonce.ErrLost, "settle", err)
			}
			t.oneHas(c.ID, "k", h.Owner, other.Owner, err == nil, taken)
		}},
		{"another owner or fence settles nothing", func(t T) {
			h := holdOf(t.mustClaim(claimOf("k")))
			other, above, below := h, h, h
			other.Owner, above.Fence, below.Fence = newOwner(), h.Fence+1, h.Fence-1
			for _, wrong := range []onlyonce.Hold{other, above, below} {
				t.lostTx(wrong)
			}
		}},
		{"a command that is settled is not settled again", func(t T) {
			for i, s := range endings {
				t.lostTx(holdOf(t.complete(claimOf(fmt.Sprint(i)), s)))
			}
		}},
		{"a command that was settled in a transaction is not settled again", func(t T) {
			h := holdOf(t.mustClaim(claimOf("k")))
			t.settles(nil, h, "first", completed("made"), nil)
			t.lostTx(h)
			t.rows("first", 1)
		}},
		{"a command that is not there is not settled", func(t T) {
			h := holdOf(t.mustClaim(claimOf("k")))
			t.settle(h, onlyonce.Settlement{})
			t.wantErr(onlyonce.ErrLost, "settle", t.Store.SettleTx(t.ctx, h, t.settling("k", completed("too late"), nil)))
			t.rows("k", 0)
			t.mustBeAbsent(h.ID)
		}},
		{"a late settlement and a take-over do not both happen", func(t T) {
			t.duel(func(r onlyonce.Record) error {
				return t.Store.SettleTx(t.ctx, holdOf(r), t.settling(r.ID.Key, completed("by the first"), nil))
			})
			for i := range duels {
				id := idOf(fmt.Sprint(i))
				t.rows(id.Key, map[bool]int{true: 1}[t.lookup(id).State == onlyonce.StateCompleted])
			}
		}},
		{"a context that has ended settles nothing", func(t T) {
			h := holdOf(t.mustClaim(claimOf("k")))
			was := t.snap(h.ID)
			ctx, cancel := context.WithCancel(t.ctx)
			cancel()
			t.wantErr(context.Canceled, "settle", t.Store.SettleTx(ctx, h, t.settling("k", completed("made"), nil)))
			t.rows("k", 0)
			t.unchanged(was)
		}},
		{"the function's context ends with its caller's", func(t T) {
			h := holdOf(t.mustClaim(claimOf("k")))
			ctx, cancel := context.WithCancelCause(t.ctx)
			err := t.Store.SettleTx(ctx, h, func(ctx context.Context, _ TX) (onlyonce.Settlement, error) {
				cancel(errOwn)
				return onlyonce.Settlement{}, t.cause(ctx)
			})
			t.wantErr(errOwn, "settle", err)
		}},
		{"many settlements at once are all committed", func(t T) {
			var holds []onlyonce.Hold
			for i := range crowd {
				holds = append(holds, holdOf(t.mustClaim(claimOf(fmt.Sprint(i)))))
			}
			together(crowd, func(i int) { t.settles(nil, holds[i], fmt.Sprint(i), completed("made"), nil) })
			for i := range crowd {
				t.rows(fmt.Sprint(i), 1)
				if r := t.lookup(holds[i].ID); r.State != onlyonce.StateCompleted {
					t.Errorf("the record is %s", describe(r))
				}
			}
		}},
	}
	for _, d := range disasters {
		rules = append(rules, txRule[TX]{"a function that " + d.name + " leaves the claim as it is", func(t T) {
			h := holdOf(t.mustClaim(claimOf("k")))
			was := t.snap(h.ID)
			fn := t.strikes("k", d)
			t.struck(d, func() {
				t.Store.SettleTx(t.ctx, h, func(ctx context.Context, tx TX) (onlyonce.Settlement, error) {
					return fn(ctx, tx, onlyonce.Record{})
				})
			})
			t.rows("k", 0)
			t.unchanged(was)
			t.settles(nil, h, "k", completed("made"), nil)
			t.rows("k", 1)
			t.mustStillWork()
		}})
	}
	return rules
}

// settling is like inserts, but for SettleTx.
func (t *txTest[TX]) settling(row string, s onlyonce.Settlement, err error) func(context.Context, TX) (onlyonce.Settlement, error) {
	fn := t.inserts(row, s, err)
	return func(ctx context.Context, tx TX) (onlyonce.Settlement, error) { return fn(ctx, tx, onlyonce.Record{}) }
}

// settles wants a settlement in a transaction to return the error want itself.
func (t *txTest[TX]) settles(want error, h onlyonce.Hold, row string, s onlyonce.Settlement, err error) {
	t.Helper()
	if got := t.Store.SettleTx(t.ctx, h, t.settling(row, s, err)); got != want {
		t.Errorf("settle returned the error %v, want %v itself", got, want)
	}
}

// lostTx wants a hold to be rejected, and to change nothing.
func (t *txTest[TX]) lostTx(h onlyonce.Hold) {
	t.Helper()
	was := t.snap(h.ID)
	t.wantErr(onlyonce.ErrLost, "settle", t.Store.SettleTx(t.ctx, h, t.settling("lost", completed("too late"), nil)))
	t.wantErr(onlyonce.ErrLost, "release", t.Store.SettleTx(t.ctx, h, t.settling("lost", onlyonce.Settlement{}, nil)))
	t.rows("lost", 0)
	t.unchanged(was)
}
