package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/storetest/internal/history"
)

const (
	racers = 16
	duels  = 20
)

var raceRules = slices.Concat([]rule{
	{"exactly one of many concurrent claims gets a new command", func(t *storeTest) {
		for i := range 50 {
			t.oneOf(func() onlyonce.Claim { return claimOf(fmt.Sprint(i)) })
		}
	}},
	{"each of many new commands goes to exactly one of many concurrent claims", func(t *storeTest) {
		const commands = 50
		var granted [commands]atomic.Int32
		together(racers, func(i int) {
			for n := range commands {
				k := (n + i*commands/racers) % commands
				c := claimOf(fmt.Sprint(k))
				r, err := t.store.Claim(t.ctx, c)
				if err != nil {
					t.Errorf("claim: %v", err)
				}
				if r.Owner == c.Owner {
					granted[k].Add(1)
				}
			}
		})
		for k := range granted {
			if n := granted[k].Load(); n != 1 {
				t.Errorf("command %d was granted to %d", k, n)
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
	{"a claim that is repeated at once is granted once", func(t *storeTest) {
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
	{"a duplicate that claims until the command is completed gets the first result", func(t *storeTest) {
		for i := range 10 {
			key := fmt.Sprint(i)
			results := make([]string, racers)
			together(racers, func(i int) { results[i] = t.claimUntilCompleted(claimOf(key)) })
			if len(slices.Compact(results)) != 1 {
				t.Errorf("the results differ: %x", results)
			}
		}
	}},
}, takeovers())

func takeovers() []rule {
	var rules []rule
	for _, s := range recordStates {
		if s.name == "lapsed" || s.name == "failed" || s.name == "unknown" {
			rules = append(rules, rule{"of many callers that take over at once exactly one gets a command that is " + s.name, func(t *storeTest) {
				for i := range 10 {
					c := claimOf(fmt.Sprint(i))
					was := s.enter(t, c)
					if r := t.oneOf(func() onlyonce.Claim { return greedy(c) }); r.Attempt != 2 || r.Fence <= was.Fence {
						t.Errorf("it is now %s, after fence %d", describe(r), was.Fence)
					}
				}
			}})
		}
	}
	return rules
}

// oneOf makes many claims at once, wants exactly one of them to get the command and the
// others to get its record, and returns the record.
func (t *storeTest) oneOf(claim func() onlyonce.Claim) onlyonce.Record {
	t.Helper()
	var claims [racers]onlyonce.Claim
	var results [racers]onlyonce.Record
	together(racers, func(i int) {
		claims[i] = claim()
		var err error
		if results[i], err = t.store.Claim(t.ctx, claims[i]); err != nil {
			t.Errorf("claim: %v", err)
		}
	})
	var winners int
	for i, r := range results {
		if r.Owner == claims[i].Owner {
			winners++
		}
	}
	r := t.lookup(claims[0].ID)
	if winners != 1 {
		t.Errorf("%d of %d got the command", winners, racers)
	}
	for i, a := range results {
		if a.Owner != claims[i].Owner && a.Fence < r.Fence {
			a.Fence = r.Fence // a store may raise it until it gives the hold away, and others may look before
		}
		t.wantSame(r, a)
	}
	return r
}

// duel lets the first holder, whose lease has lapsed, and a caller that takes over act
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

// claimUntilCompleted claims until the command is completed, runs it if a claim gets it, and returns its
// result.
func (t *storeTest) claimUntilCompleted(c onlyonce.Claim) string {
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

var historyRules = []rule{
	{"whatever many holders do at once, no history breaks a rule", func(t *storeTest) {
		l := &load{storeTest: t, start: time.Now(), acts: map[onlyonce.ID][]history.Act{}}
		together(8, func(int) {
			for range 20 {
				for !l.claimAndEnd(rand.IntN(len(l.round))) {
					time.Sleep(rand.N(poll))
				}
			}
		})
		var all, taken int
		for id, acts := range l.acts {
			for _, broken := range history.Check(acts) {
				t.Errorf("%q: %s", id.Key, broken)
			}
			for _, a := range acts {
				all++
				if a.Attempt > 1 {
					taken++
				}
			}
		}
		t.Logf("%d acts on %d commands, %d of them take-overs", all, len(l.acts), taken)
	}},
}

// holding is the lease of a load: long enough for some calls, and short enough to lapse
// often.
const holding = 4 * time.Millisecond

// A load is a number of holders that use a few commands, with what they observed.
type load struct {
	*storeTest
	start time.Time
	round [5]atomic.Int64 // each command is followed by another once it is completed for long

	mu   sync.Mutex
	acts map[onlyonce.ID][]history.Act
}

// claimAndEnd claims a command, and ends or renews it if the claim gets it.
func (l *load) claimAndEnd(n int) (granted bool) {
	round := l.round[n].Load()
	c := claimOf(fmt.Sprint("command ", n, ", round ", round))
	c.Lease, c.RetryFailed, c.TakeUnknown = holding, rand.IntN(4) > 0, rand.IntN(4) > 0
	a := history.Act{Kind: "claim", Lease: c.Lease, From: time.Since(l.start)}
	r, err := l.store.Claim(l.ctx, c)
	if err != nil {
		l.Errorf("claim: %v", err)
		return true
	}
	if r.Owner != c.Owner {
		l.look(r)
		return false
	}
	a.Hold, a.Attempt = holdOf(r), r.Attempt
	l.note(a)
	for range rand.IntN(3) {
		l.renewing(a.Hold)
	}
	if rand.IntN(3) == 0 {
		l.stall(a.Hold)
	}
	if rand.IntN(8) == 0 {
		return true // as if the process had died
	}
	end := l.randomSettlement(r)
	if l.settling(a.Hold, end) && completesForLong(end) {
		l.round[n].CompareAndSwap(round, round+1)
	}
	if rand.IntN(4) == 0 {
		l.settling(a.Hold, end)
	}
	return true
}

// completesForLong reports whether a settlement completes a command for longer than a test lasts.
func completesForLong(s onlyonce.Settlement) bool {
	return s.State == onlyonce.StateCompleted && s.Keep == long
}

func (l *load) randomSettlement(r onlyonce.Record) onlyonce.Settlement {
	text := fmt.Sprintf("%x", r.Owner)
	all := []onlyonce.Settlement{
		completed(text), keeping(completed(text), poll), failed(text), keeping(failed(text), poll), unknown(text), {},
	}
	return all[rand.IntN(len(all))]
}

// look checks that the parts of a record belong together.
func (l *load) look(r onlyonce.Record) {
	text := map[onlyonce.State]string{
		onlyonce.StateCompleted: string(r.Result.Body), onlyonce.StateFailed: r.Error, onlyonce.StateUnknown: r.Error,
	}
	if got, settled := text[r.State]; settled && got != fmt.Sprintf("%x", r.Owner) {
		l.Errorf("the record is %s with another's %q", describe(r), got)
	}
}

// stall waits until the hold's lease has lapsed, or another claim has the command.
func (l *load) stall(h onlyonce.Hold) {
	for {
		r, err := l.store.Lookup(l.ctx, h.ID)
		if err != nil || r.Fence != h.Fence || r.LeaseLeft <= 0 {
			return
		}
		time.Sleep(poll)
	}
}

func (l *load) renewing(h onlyonce.Hold) {
	a := history.Act{Hold: h, Kind: "renew", Lease: holding, From: time.Since(l.start)}
	a.Lost = l.isLost(l.store.Renew(l.ctx, h, a.Lease, nil))
	l.note(a)
}

func (l *load) settling(h onlyonce.Hold, end onlyonce.Settlement) bool {
	a := history.Act{Hold: h, Kind: "settle", Lasts: completesForLong(end), From: time.Since(l.start)}
	a.Lost = l.isLost(l.store.Settle(l.ctx, h, end))
	l.note(a)
	return !a.Lost
}

func (l *load) isLost(err error) bool {
	if err != nil && !errors.Is(err, onlyonce.ErrLost) {
		l.Errorf("renew or settle: %v", err)
	}
	return err != nil
}

func (l *load) note(a history.Act) {
	a.To = time.Since(l.start)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acts[a.Hold.ID] = append(l.acts[a.Hold.ID], a)
}
