package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

func runRules[TX any]() []txRule[TX] {
	type T = *txTest[TX]
	rules := []txRule[TX]{
		{"rows and record are committed together", func(t T) {
			c := claimOf("k")
			r := t.mustRun(c, t.inserts("k", completed("made"), nil))
			t.rows("k", 1)
			want := onlyonce.Record{
				ID: c.ID, State: onlyonce.StateCompleted, Fingerprint: c.Fingerprint, Owner: c.Owner, Attempt: 1, Fence: r.Fence,
				Result: completed("made").Result, CreatedAt: r.CreatedAt, SettledAt: r.SettledAt,
			}
			t.wantSame(want, r)
			t.sameEnd("KeepLeft", long, t.lookup(c.ID).KeepLeft, 0)
			t.sameEnd("KeepLeft", long, r.KeepLeft, 0)
		}},
		{"the function sees the record as it was claimed", func(t T) {
			c := claimOf("k")
			var seen onlyonce.Record
			t.mustRun(c, func(_ context.Context, _ TX, r onlyonce.Record) (onlyonce.Settlement, error) {
				seen = r
				return completed("made"), nil
			})
			if seen.Fence <= 0 || seen.Fence != t.lookup(c.ID).Fence {
				t.Errorf("the function saw fence %d, the record has %d", seen.Fence, t.lookup(c.ID).Fence)
			}
			t.wantSame(onlyonce.Record{
				ID: c.ID, State: onlyonce.StateProcessing, Fingerprint: c.Fingerprint, Owner: c.Owner, Attempt: 1,
				Fence: seen.Fence, CreatedAt: seen.CreatedAt,
			}, seen)
		}},
		{"the summary is committed with the record", func(t T) {
			c := summarized("k", "/v1/payments")
			r := t.mustRun(c, func(_ context.Context, _ TX, r onlyonce.Record) (onlyonce.Settlement, error) {
				t.hasSummary(r, c.Summary)
				return completed("made"), nil
			})
			t.hasSummary(r, c.Summary)
			t.hasSummary(t.lookup(c.ID), c.Summary)
		}},
		{"the function gets what its caller's context carries", func(t T) {
			type key struct{}
			ctx := context.WithValue(t.ctx, key{}, "the caller's")
			if _, err := t.Store.RunTx(ctx, claimOf("k"), func(ctx context.Context, _ TX, _ onlyonce.Record) (onlyonce.Settlement, error) {
				if ctx.Value(key{}) != "the caller's" {
					t.Error("the function got another context")
				}
				return completed("made"), nil
			}); err != nil {
				t.Errorf("run: %v", err)
			}
		}},
		{"the function's context ends with its caller's", func(t T) {
			ctx, cancel := context.WithCancelCause(t.ctx)
			_, err := t.Store.RunTx(ctx, claimOf("k"), func(ctx context.Context, _ TX, _ onlyonce.Record) (onlyonce.Settlement, error) {
				cancel(errOwn)
				return onlyonce.Settlement{}, t.cause(ctx)
			})
			t.wantErr(errOwn, "run", err)
		}},
		{"no reader sees rows or result before the commit", func(t T) {
			c := claimOf("k")
			t.mustRun(c, func(ctx context.Context, tx TX, r onlyonce.Record) (onlyonce.Settlement, error) {
				s, err := t.inserts("k", completed("made"), nil)(ctx, tx, r)
				t.rows("k", 0)
				if r, err := t.store.Lookup(t.ctx, c.ID); err == nil && r.State != onlyonce.StateProcessing {
					t.Errorf("the record is %s before the commit", describe(r))
				}
				return s, err
			})
			t.rows("k", 1)
		}},
		{"a result of 1 MiB is committed whole", func(t T) {
			body := bytes.Repeat(everyByte(), 4096)
			r := t.mustRun(claimOf("k"), t.inserts("k", completed(string(body)), nil))
			t.rows("k", 1)
			t.sameResult(completed(string(body)).Result, r.Result)
		}},
		{"every ending is recorded with the rows", func(t T) {
			for i, s := range endings {
				key := fmt.Sprint(i)
				r := t.mustRun(claimOf(key), t.inserts(key, s, nil))
				t.rows(key, 1)
				if r.State != s.State || r.Error != s.Error || r.Final != s.Final {
					t.Errorf("the record is %s with error %q, want state %s", describe(r), r.Error, s.State)
				}
				t.sameEnd("KeepLeft", s.Keep, t.lookup(r.ID).KeepLeft, 0)
			}
		}},
		{"a settlement with which no attempt can end rolls back and records nothing", func(t T) {
			for i, s := range impossible {
				for j, own := range []error{nil, errOwn} {
					key := fmt.Sprint(i, j)
					_, err := t.Store.RunTx(t.ctx, claimOf(key), t.inserts(key, s, own))
					t.rejected("run", s, err)
					if own != nil {
						t.wantErr(own, "run", err)
					}
					t.rows(key, 0)
					t.mustBeAbsent(idOf(key))
				}
			}
			t.mustStillWork()
		}},
		{"a release commits the rows and leaves no record", func(t T) {
			c := claimOf("k")
			if _, err := t.Store.RunTx(t.ctx, c, t.inserts("k", onlyonce.Settlement{}, nil)); err != nil {
				t.Fatalf("run: %v", err)
			}
			t.rows("k", 1)
			t.mustBeAbsent(c.ID)
		}},
		{"a release after a failure leaves no record either", func(t T) {
			c := claimOf("k")
			t.complete(c, failed("no stock"))
			if _, err := t.Store.RunTx(t.ctx, greedy(c), t.inserts("k", onlyonce.Settlement{}, nil)); err != nil {
				t.Fatalf("run: %v", err)
			}
			t.rows("k", 1)
			t.mustBeAbsent(c.ID)
		}},
		{"a replay does not run", func(t T) {
			c := claimOf("k")
			t.mustRun(c, t.inserts("k", completed("made"), nil))
			t.mustNotRun(greedy(c))
			t.rows("k", 1)
		}},
		{"a replay of a record that is kept for good does not run", func(t T) {
			for i, s := range []onlyonce.Settlement{completed("made"), failedForGood("no such article")} {
				for _, keep := range []time.Duration{0, onlyonce.KeepForever} {
					key := fmt.Sprint(i, keep)
					t.mustRun(claimOf(key), t.inserts(key, keeping(s, keep), nil))
					t.mustNotRun(greedy(claimOf(key)))
					t.rows(key, 1)
					t.complete(claimOf(key+" by lease"), keeping(s, keep))
					t.mustNotRun(greedy(claimOf(key + " by lease")))
				}
			}
		}},
		{"a run that is repeated because its response was lost is recognized", func(t T) {
			c := claimOf("k")
			t.mustRun(c, t.inserts("k", completed("made"), nil))
			t.mustNotRun(c)
			t.rows("k", 1)
		}},
		{"a command that is held by a lease does not run", func(t T) {
			c := claimOf("k")
			t.mustClaim(c)
			t.mustNotRun(greedy(c))
		}},
		{"a duplicate during the transaction gets a processing record at once, and then the result", func(t T) {
			c := claimOf("k")
			t.mustRun(c, func(ctx context.Context, tx TX, r onlyonce.Record) (onlyonce.Settlement, error) {
				other := greedy(c)
				dup, err := t.Store.RunTx(t.ctx, other, t.never())
				if err != nil || dup.State != onlyonce.StateProcessing || dup.Owner == other.Owner || dup.ID != c.ID || dup.LeaseLeft <= 0 {
					t.Errorf("the duplicate got %s and error %v", describe(dup), err)
				}
				return t.inserts("k", completed("made"), nil)(ctx, tx, r)
			})
			t.mustNotRun(greedy(c))
			t.rows("k", 1)
		}},
		{"a run and a claim that takes the command over meanwhile do not both have it", func(t T) {
			c := claimOf("k")
			t.complete(c, failed("no stock"))
			mine, other := greedy(c), greedy(c)
			taken := false
			r, err := t.Store.RunTx(t.ctx, mine, func(ctx context.Context, tx TX, r onlyonce.Record) (onlyonce.Settlement, error) {
				taken = t.claimMeanwhile(other) || taken
				return t.inserts("k", completed("made"), nil)(ctx, tx, r)
			})
			t.oneHas(c.ID, "k", mine.Owner, other.Owner, err == nil && r.Owner == mine.Owner, taken)
		}},
		{"a retry runs as the next attempt", func(t T) {
			t.mustRunNext(failed("no stock"))
		}},
		{"a take-over of an unknown outcome runs as the next attempt", func(t T) {
			t.mustRunNext(unknown("no response"))
		}},
		{"a take-over of a lapsed lease runs as the next attempt", func(t T) {
			t.mustRunNext(onlyonce.Settlement{})
		}},
		{"attempts are counted and fences grow over transactions", func(t T) {
			c := claimOf("k")
			var last int64
			for n := 1; n <= 5; n++ {
				r := t.mustRun(c, t.inserts("k", failed("no stock"), nil))
				if r.Attempt != n || r.Fence <= last {
					t.Errorf("attempt %d has fence %d, after %d of %d", r.Attempt, r.Fence, n-1, last)
				}
				last, c = r.Fence, greedy(c)
			}
			t.rows("k", 5)
		}},
		{"an expired command runs anew with a higher fence", func(t T) {
			c := claimOf("k")
			was, err := t.Store.RunTx(t.ctx, c, t.inserts("k", keeping(completed("made"), short), nil))
			if err != nil || was.Owner != c.Owner {
				t.Fatalf("run: %s, %v", describe(was), err)
			}
			t.awaitExpiry(c.ID)
			if r := t.mustRun(newCaller(c), t.inserts("k", completed("made anew"), nil)); r.Attempt != 1 || r.Fence <= was.Fence {
				t.Errorf("it is now %s, after fence %d", describe(r), was.Fence)
			}
			t.rows("k", 2)
		}},
		{"a result with a keep is committed with the rows, and only its ID is left in the end", func(t T) {
			c, s := claimOf("k"), completed("made")
			s.Result.Keep = short
			if _, err := t.Store.RunTx(t.ctx, c, t.inserts("k", s, nil)); err != nil {
				t.Fatalf("run: %v", err)
			}
			t.awaitForgetting(c.ID)
			t.mustNotRun(greedy(c))
			t.rows("k", 1)
		}},
		{"a claim that leaves open whether anything is compared runs nothing", func(t T) {
			for _, c := range ambiguousClaims(claimOf("k")) {
				r, err := t.Store.RunTx(t.ctx, c, t.never())
				t.mustRejectAmbiguous("run", r, err)
			}
			t.mustBeAbsent(idOf("k"))
		}},
		{"a lapsed command whose claim's keep has passed runs anew, without its steps", func(t T) {
			c := claimKeeping("k", short)
			was := t.mustClaim(c)
			t.renew(holdOf(was), short, steps{"charge": []byte("ch_1")})
			t.awaitExpiry(c.ID)
			r := t.mustRun(greedy(c), t.inserts("k", completed("made"), nil))
			if r.Attempt != 1 || r.Fence <= was.Fence || r.Steps != nil {
				t.Errorf("it is %s with steps %q, after fence %d", describe(r), r.Steps, was.Fence)
			}
			t.rows("k", 1)
		}},
		{"a context that has ended runs nothing", func(t T) {
			ctx, cancel := context.WithCancel(t.ctx)
			cancel()
			_, err := t.Store.RunTx(ctx, claimOf("k"), t.never())
			t.wantErr(context.Canceled, "run", err)
			t.mustBeAbsent(idOf("k"))
		}},
		{"a context that ends meanwhile leaves rows and record, or neither", func(t T) {
			for i := range 10 {
				c, row := claimOf(fmt.Sprint(i)), fmt.Sprint(i)
				ctx, cancel := context.WithCancel(t.ctx)
				_, err := t.Store.RunTx(ctx, c, func(ctx context.Context, tx TX, r onlyonce.Record) (onlyonce.Settlement, error) {
					defer cancel()
					return t.inserts(row, completed("made"), nil)(ctx, tx, r)
				})
				t.awaitAgreement(c.ID, row)
				if err == nil {
					t.rows(row, 1)
				}
			}
			t.mustStillWork()
		}},
	}
	for _, stand := range recordStates {
		rules = append(rules,
			txRule[TX]{"a claim that takes nothing does not run when the command is " + stand.name, func(t T) {
				c := claimOf("k")
				stand.enter(t.storeTest, c)
				t.mustNotRun(newCaller(c))
			}},
			txRule[TX]{"another fingerprint does not run when the command is " + stand.name, func(t T) {
				c := claimOf("k")
				stand.enter(t.storeTest, c)
				c = greedy(c)
				c.Fingerprint, c.Lease = []byte("another order"), time.Hour
				t.mustNotRun(c)
			}})
	}
	return rules
}

// claimMeanwhile reports whether a claim is granted while the function of a transaction runs. In a
// database with a single writer, it has to wait for the transaction and is given up.
func (t *txTest[TX]) claimMeanwhile(c onlyonce.Claim) bool {
	ctx, cancel := context.WithTimeout(t.ctx, 10*short)
	defer cancel()
	r, err := t.store.Claim(ctx, c)
	return err == nil && r.Owner == c.Owner
}

// oneHas wants a command to be completed by the owner first, with its row, or else to be held by the
// owner second, without a row of the first. succeeded and taken say what each was told.
func (t *txTest[TX]) oneHas(id onlyonce.ID, row, first, second string, succeeded, taken bool) {
	t.Helper()
	owner, state, rows := second, onlyonce.StateProcessing, 0
	if succeeded {
		owner, state, rows = first, onlyonce.StateCompleted, 1
	}
	if r := t.lookup(id); succeeded && taken || r.Owner != owner || r.State != state {
		t.Errorf("the first succeeded: %v, the second took over: %v, and the record is %s", succeeded, taken, describe(r))
	}
	t.rows(row, rows)
}

// mustRunNext wants a command that was lost with s to run as the next attempt.
func (t *txTest[TX]) mustRunNext(s onlyonce.Settlement) {
	t.Helper()
	c := claimOf("k")
	was := t.mustClaim(c)
	kept := steps{"charge": []byte("ch_1")}
	t.renew(holdOf(was), long, kept)
	t.endAttempt(was, s)
	c = greedy(c)
	want := onlyonce.Record{
		ID: c.ID, State: onlyonce.StateProcessing, Fingerprint: c.Fingerprint, Owner: c.Owner, Attempt: 2,
		Error: s.Error, Steps: kept, CreatedAt: was.CreatedAt,
	}
	r := t.mustRun(c, func(ctx context.Context, tx TX, r onlyonce.Record) (onlyonce.Settlement, error) {
		want.Fence = r.Fence
		t.wantSame(want, r)
		if r.Fence <= was.Fence {
			t.Errorf("the fence went from %d to %d", was.Fence, r.Fence)
		}
		return t.inserts("k", completed("made"), nil)(ctx, tx, r)
	})
	t.rows("k", 1)
	want.State, want.Result, want.Error, want.SettledAt = onlyonce.StateCompleted, completed("made").Result, "", r.SettledAt
	t.wantSame(want, r)
}

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
				t.wantSame(onlyonce.Record{
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
				stand.enter(t.storeTest, c)
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
				t.Skip("functions cannot end a transaction of this store themselves")
			}
			t.meddles(t.Rollback)
			t.rows("k", 0)
		}},
		{"a function that commits the transaction itself gets an error", func(t T) {
			if t.Commit == nil {
				t.Skip("functions cannot end a transaction of this store themselves")
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

// strikes returns a function that adds a row and then has a disaster.
func (t *txTest[TX]) strikes(row string, d disaster) txFunc[TX] {
	return func(ctx context.Context, tx TX, r onlyonce.Record) (onlyonce.Settlement, error) {
		s, err := t.inserts(row, completed("made"), nil)(ctx, tx, r)
		d.strike()
		return s, err
	}
}

// failsWith wants a run to return the function's error unchanged.
func (t *txTest[TX]) failsWith(want error, c onlyonce.Claim, fn txFunc[TX]) {
	t.Helper()
	if _, err := t.Store.RunTx(t.ctx, c, fn); err != want {
		t.Errorf("run returned the error %v, want %v itself", err, want)
	}
}

// meddles runs a function that ends its transaction, and wants an error, no result
// without its rows, and a store that continues to work.
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
