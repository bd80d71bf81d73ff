package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

const (
	racers = 16
	duels  = 20
)

var raceRules = slices.Concat([]rule{
	{"of many who claim a new command at once exactly one gets it", func(t *storeTest) {
		for i := range 50 {
			t.oneOf(func() onlyonce.Claim { return claimOf(fmt.Sprint(i)) })
		}
	}},
	{"of many who claim many new commands at once each command goes to exactly one", func(t *storeTest) {
		const commands = 50
		var given [commands]atomic.Int32
		together(racers, func(i int) {
			for n := range commands {
				k := (n + i*commands/racers) % commands
				c := claimOf(fmt.Sprint(k))
				r, err := t.store.Claim(t.ctx, c)
				if err != nil {
					t.Errorf("claim: %v", err)
				}
				if r.Owner == c.Owner {
					given[k].Add(1)
				}
			}
		})
		for k := range given {
			if n := given[k].Load(); n != 1 {
				t.Errorf("command %d was given to %d", k, n)
			}
		}
	}},
	{"of two requests that race for one key one is rejected as another", func(t *storeTest) {
		for i := range 30 {
			key := fmt.Sprint(i)
			r := t.oneOf(func() onlyonce.Claim {
				c := greedy(claimOf(key))
				c.Fingerprint = []byte(c.Owner)
				return c
			})
			if string(r.Fingerprint) != r.Owner {
				t.Errorf("the command is one racer's with another's fingerprint")
			}
		}
	}},
	{"a claim that is repeated at once is given once", func(t *storeTest) {
		for i := range 20 {
			c := claimOf(fmt.Sprint(i))
			fences := make([]int64, racers)
			together(racers, func(i int) {
				r, err := t.store.Claim(t.ctx, c)
				if err != nil || r.Owner != c.Owner || r.Attempt != 1 {
					t.Errorf("the claim got %s and error %v", describe(r), err)
				}
				fences[i] = r.Fence
			})
			if len(slices.Compact(fences)) != 1 {
				t.Errorf("one claim got the fences %d", fences)
			}
		}
	}},
	{"a released command goes to exactly one of many", func(t *storeTest) {
		for i := range 10 {
			c := claimOf(fmt.Sprint(i))
			t.settle(holdOf(t.mustClaim(c)), onlyonce.Settlement{})
			t.oneOf(func() onlyonce.Claim { return newCaller(c) })
		}
	}},
	{"an expired command goes to exactly one of many", func(t *storeTest) {
		for i := range 10 {
			c := claimOf(fmt.Sprint(i))
			t.settle(holdOf(t.mustClaim(c)), keeping(completed("made"), poll))
			t.awaitExpiry(c.ID)
			t.oneOf(func() onlyonce.Claim { return greedy(c) })
		}
	}},
	{"a late settlement and a take-over do not both happen", func(t *storeTest) {
		t.duel(func(r onlyonce.Record) error { return t.store.Settle(t.ctx, holdOf(r), completed("by the first")) })
	}},
	{"a late renewal and a take-over do not both happen", func(t *storeTest) {
		t.duel(func(r onlyonce.Record) error { return t.store.Renew(t.ctx, holdOf(r), long, nil) })
	}},
	{"of two different settlements at once one is the record", func(t *storeTest) {
		for i := range 30 {
			c := claimOf(fmt.Sprint(i))
			h := holdOf(t.mustClaim(c))
			ends := []onlyonce.Settlement{completed("made"), failedForGood("no such article")}
			together(2, func(i int) {
				if err := t.store.Settle(t.ctx, h, ends[i]); err != nil {
					t.Errorf("settle: %v", err)
				}
			})
			r := t.lookup(c.ID)
			k := slices.IndexFunc(ends, func(s onlyonce.Settlement) bool { return s.State == r.State })
			if k < 0 || r.Error != ends[k].Error || r.Final != ends[k].Final {
				t.Fatalf("the record is neither settlement: %s with error %q", describe(r), r.Error)
			}
			t.sameResult(ends[k].Result, r.Result)
		}
	}},
	{"a duplicate that asks until it is answered gets the first answer", func(t *storeTest) {
		for i := range 10 {
			key := fmt.Sprint(i)
			answers := make([]string, racers)
			together(racers, func(i int) { answers[i] = t.ask(claimOf(key)) })
			if len(slices.Compact(answers)) != 1 {
				t.Errorf("the answers differ: %x", answers)
			}
		}
	}},
}, takeovers())

func takeovers() []rule {
	var rules []rule
	for _, s := range recordStates {
		if s.name == "lapsed" || s.name == "failed" || s.name == "unknown" {
			rules = append(rules, rule{"of many who take over at once exactly one gets a command that is " + s.name, func(t *storeTest) {
				for i := range 10 {
					c := claimOf(fmt.Sprint(i))
					was := s.reach(t, c)
					if r := t.oneOf(func() onlyonce.Claim { return greedy(c) }); r.Attempt != 2 || r.Fence <= was.Fence {
						t.Errorf("it is now %s, after fence %d", describe(r), was.Fence)
					}
				}
			}})
		}
	}
	return rules
}

// oneOf lets many claim at once, wants exactly one to get the command and the
// others to be told so, and returns the record.
func (t *storeTest) oneOf(claim func() onlyonce.Claim) onlyonce.Record {
	t.Helper()
	var claims [racers]onlyonce.Claim
	var answers [racers]onlyonce.Record
	together(racers, func(i int) {
		claims[i] = claim()
		var err error
		if answers[i], err = t.store.Claim(t.ctx, claims[i]); err != nil {
			t.Errorf("claim: %v", err)
		}
	})
	var winners int
	for i, r := range answers {
		if r.Owner == claims[i].Owner {
			winners++
		}
	}
	r := t.lookup(claims[0].ID)
	if winners != 1 {
		t.Errorf("%d of %d got the command", winners, racers)
	}
	for i, a := range answers {
		if a.Owner != claims[i].Owner && a.Fence < r.Fence {
			a.Fence = r.Fence // a store may raise it until it gives the hold away, and others may look before
		}
		t.same(r, a)
	}
	return r
}

// duel lets the first holder, whose lease has lapsed, and one who takes over act
// at once, and wants exactly one of them to succeed.
func (t *storeTest) duel(first func(onlyonce.Record) error) {
	t.Helper()
	for i := range duels {
		c := claimOf(fmt.Sprint(i))
		lapsed := t.awaitLapse(holdOf(t.mustClaim(c)))
		second := greedy(c)
		var firstErr, secondErr error
		var r onlyonce.Record
		together(2, func(i int) {
			if i == 0 {
				firstErr = first(lapsed)
			} else {
				r, secondErr = t.store.Claim(t.ctx, second)
			}
		})
		if secondErr != nil {
			t.Fatalf("claim: %v", secondErr)
		}
		if firstErr != nil && !errors.Is(firstErr, onlyonce.ErrLost) {
			t.Fatalf("the first got error %v, want none or ErrLost", firstErr)
		}
		if took := r.Owner == second.Owner; took == (firstErr == nil) {
			t.Fatalf("the first got error %v, the second took over: %v", firstErr, took)
		}
	}
}

// ask claims until the command is completed, running it if it is given, and
// returns its answer.
func (t *storeTest) ask(c onlyonce.Claim) string {
	for {
		r, err := t.store.Claim(t.ctx, c)
		switch {
		case err != nil:
			t.Errorf("claim: %v", err)
			return ""
		case r.State == onlyonce.StateCompleted:
			return string(r.Result.Body)
		case r.Owner == c.Owner:
			if err := t.store.Settle(t.ctx, holdOf(r), completed(c.Owner)); err != nil {
				t.Errorf("settle: %v", err)
				return ""
			}
		default:
			time.Sleep(poll)
		}
	}
}
