//go:build linux

package histories

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// broken is a store with one bug: each function that is not nil replaces a method.
type broken struct {
	*memstore.Store
	claim  func(context.Context, onlyonce.Claim) (onlyonce.Record, error)
	settle func(context.Context, onlyonce.Hold, onlyonce.Settlement) error
	purge  func(context.Context) error
	decide func(context.Context, onlyonce.Record, onlyonce.Settlement) error
}

func (b *broken) Claim(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
	if b.claim != nil {
		return b.claim(ctx, c)
	}
	return b.Store.Claim(ctx, c)
}

func (b *broken) Settle(ctx context.Context, h onlyonce.Hold, s onlyonce.Settlement) error {
	if b.settle != nil {
		return b.settle(ctx, h, s)
	}
	return b.Store.Settle(ctx, h, s)
}

func (b *broken) Purge(ctx context.Context, limit int) (int, error) {
	if b.purge != nil {
		return 0, b.purge(ctx)
	}
	return b.Store.Purge(ctx, limit)
}

func (b *broken) Resolve(ctx context.Context, seen onlyonce.Record, s onlyonce.Settlement) error {
	if b.decide != nil {
		return b.decide(ctx, seen, s)
	}
	return b.Store.Resolve(ctx, seen, s)
}

// plantedBugs has a function for each bug, which plants the bug in a store.
var plantedBugs = map[string]func(b *broken){
	"a fence is issued twice": func(b *broken) {
		var mu sync.Mutex
		last := map[onlyonce.ID]int64{}
		b.claim = func(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
			r, err := b.Store.Claim(ctx, c)
			mu.Lock()
			defer mu.Unlock()
			if err == nil && r.Owner == c.Owner && r.State == onlyonce.StateProcessing {
				issued := r.Fence
				if r.Attempt > 1 {
					r.Fence = last[c.ID]
				}
				last[c.ID] = issued
			}
			return r, err
		}
	},
	"a lease that is alive is taken over": func(b *broken) {
		b.claim = func(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
			r, err := b.Store.Claim(ctx, c)
			if err == nil && r.Owner != c.Owner && r.LeaseLeft > 0 && c.TakeUnknown {
				_ = b.Store.Settle(ctx, onlyonce.Hold{ID: r.ID, Owner: r.Owner, Fence: r.Fence}, onlyonce.Settlement{State: onlyonce.StateUnknown, Keep: long})
				return b.Store.Claim(ctx, c)
			}
			return r, err
		}
	},
	"the result of another record is replayed": func(b *broken) {
		var mu sync.Mutex
		var other onlyonce.Record
		b.claim = func(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
			r, err := b.Store.Claim(ctx, c)
			mu.Lock()
			defer mu.Unlock()
			if r.State == onlyonce.StateCompleted {
				other, r.Result = r, other.Result
			}
			return r, err
		}
	},
	"a replay names another owner": func(b *broken) {
		b.claim = func(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
			r, err := b.Store.Claim(ctx, c)
			if r.State == onlyonce.StateCompleted {
				r.Owner = c.Owner
			}
			return r, err
		}
	},
	"a settlement that came too late is no error": func(b *broken) {
		b.settle = func(ctx context.Context, h onlyonce.Hold, s onlyonce.Settlement) error {
			if err := b.Store.Settle(ctx, h, s); !errors.Is(err, onlyonce.ErrLost) {
				return err
			}
			return nil
		}
	},
	"a settlement is confirmed and lost": func(b *broken) {
		n := 0
		var mu sync.Mutex
		b.settle = func(ctx context.Context, h onlyonce.Hold, s onlyonce.Settlement) error {
			mu.Lock()
			n++
			lost := n%10 == 0
			mu.Unlock()
			if lost {
				return nil
			}
			return b.Store.Settle(ctx, h, s)
		}
	},
	"a purge deletes a record that is kept": func(b *broken) {
		b.purge = func(ctx context.Context) error {
			for r, err := range b.Store.List(ctx, onlyonce.Filter{State: onlyonce.StateCompleted, Limit: 1}) {
				if err == nil {
					err = b.Store.Resolve(ctx, r, onlyonce.Settlement{})
				}
				if err != nil && !errors.Is(err, onlyonce.ErrLost) && !errors.Is(err, onlyonce.ErrNotFound) {
					return err
				}
			}
			return nil
		}
	},
	"a decision replaces the outcome of an attempt that has ended since": func(b *broken) {
		b.decide = func(ctx context.Context, seen onlyonce.Record, s onlyonce.Settlement) error {
			now, err := b.Store.Lookup(ctx, seen.ID)
			if err == nil && now.Fence == seen.Fence {
				seen.State = now.State
			}
			return b.Store.Resolve(ctx, seen, s)
		}
	},
	"a fingerprint is ignored": func(b *broken) {
		b.claim = func(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
			c.Fingerprint, c.SkipFingerprint = nil, true
			return b.Store.Claim(ctx, c)
		}
	},
}

func TestPlantedBugs_EveryPlantedBugIsFound(t *testing.T) {
	needs.Time(t)
	for name, plant := range plantedBugs {
		t.Run(name, func(t *testing.T) {
			b := &broken{Store: memstore.New(memstore.Config{})}
			plant(b)
			mustFindViolation(t, inMemory(*seedFlag, 100_000, b))
		})
	}
}

// This is the same store without a bug. The checker must report no violation.
func TestPlantedBugs_NoViolationIsFoundWithoutABug(t *testing.T) {
	mustBeLinearizable(t, inMemory(*seedFlag, scale(5_000), &broken{Store: memstore.New(memstore.Config{})}))
}

// Claims in doubt may have taken effect in any order. There are too many orders to try.
func TestPlantedBugs_AHistoryWithTooManyOrdersIsNotDecided(t *testing.T) {
	h := &History{Key: "k"}
	for n := range 30 {
		h.Events = append(h.Events, &Event{
			Call:    Call{Kind: Claim, Client: n, Start: int64(n), Owner: fmt.Sprint(n), Fingerprint: 1, Lease: time.Nanosecond, TakeUnknown: true},
			Outcome: Outcome{Verdict: Doubt, End: forever},
		})
	}
	h.Events = append(h.Events, &Event{
		Call:    Call{Kind: Lookup, Client: 30, Start: 1000},
		Outcome: Outcome{Verdict: Done, End: 1001, Record: &SeenRecord{State: onlyonce.StateCompleted, Owner: "another", Attempt: 1, Fence: 1}},
	})
	if f := h.check(10_000); f == nil || !f.Undecided {
		t.Errorf("found %+v", f)
	}
}

// A slow claim raises its fence before it returns it. A call that guesses the raised fence is
// rejected with ErrLost until the claim has returned.
func TestPlantedBugs_AFenceThatIsStillBeingRaisedCanNotBeResolved(t *testing.T) {
	for _, c := range []struct {
		name      string
		end       int64 // of the claim
		verdict   Verdict
		explained bool
	}{
		{"before the claim returned", 100, Lost, true},
		{"after the claim returned", 50, Lost, false},
		{"after the claim returned, as in flight", 50, InFlight, true},
	} {
		h := &History{Key: "k", Events: []*Event{
			{
				Call: Call{Kind: Claim, Client: 1, Start: 0, Owner: "slow", Fingerprint: 1, Lease: time.Minute},
				Outcome: Outcome{Verdict: Done, End: c.end, Record: &SeenRecord{
					State: onlyonce.StateProcessing, Owner: "slow", Fingerprint: 1, Attempt: 1, Fence: 7, Created: 1, LeaseLeft: time.Minute,
				}},
			},
			{
				Call: Call{Kind: Lookup, Client: 2, Start: 10},
				Outcome: Outcome{Verdict: Done, End: 20, Record: &SeenRecord{
					State: onlyonce.StateProcessing, Owner: "slow", Fingerprint: 1, Attempt: 1, Fence: 6, Created: 1, LeaseLeft: time.Minute,
				}},
			},
			{Call: Call{Kind: Remove, Client: 2, Start: 60, Fence: 7, SeenState: onlyonce.StateProcessing}, Outcome: Outcome{Verdict: c.verdict, End: 70}},
			{
				Call: Call{Kind: Lookup, Client: 2, Start: 110},
				Outcome: Outcome{Verdict: Done, End: 120, Record: &SeenRecord{
					State: onlyonce.StateProcessing, Owner: "slow", Fingerprint: 1, Attempt: 1, Fence: 7, Created: 1, LeaseLeft: time.Minute - 70,
				}},
			},
		}}
		if f := h.check(10_000); (f == nil) != c.explained {
			t.Errorf("%s: found %+v", c.name, f)
		}
	}
}

// The connection of a transaction may break after the server has given it its locks, and before
// its function runs. The next one then finds the locks taken, by the same request.
func TestPlantedBugs_ACommandIsBusyOnlyWhileATransactionOfTheSameRequestMayRun(t *testing.T) {
	for fingerprint, explained := range map[int]bool{1: true, 2: false} {
		h := &History{Key: "k", Events: []*Event{{
			Call:    Call{Kind: RunTx, Client: 1, Start: 0, Owner: "me", Fingerprint: 1, Lease: time.Minute, Ending: Commits},
			Outcome: Outcome{Verdict: Done, End: 10, Record: &SeenRecord{State: onlyonce.StateProcessing, Fingerprint: fingerprint, Busy: true}},
		}}}
		if f := h.check(10_000); (f == nil) != explained {
			t.Errorf("fingerprint %d: found %+v", fingerprint, f)
		}
	}
}

// A transaction reads the record when it begins, and writes it when it commits. If it expires in
// between, the transaction goes on from it, although others have found out that it has expired.
func TestPlantedBugs_ATransactionThatBeganBeforeARecordExpiredMayGoOnFromIt(t *testing.T) {
	const ms = int64(time.Millisecond)
	for start, explained := range map[int64]bool{50: true, 200: false} {
		next := Call{Kind: RunTx, Client: 2, Start: start * ms, Owner: "next", Fingerprint: 1, Lease: time.Minute, TakeUnknown: true, Ending: Commits, State: onlyonce.StateFailed, Keep: time.Minute}
		result, text := next.resultAndError()
		seen := &SeenRecord{State: onlyonce.StateFailed, Owner: "next", Fingerprint: 1, Attempt: 2, Fence: 9, Created: 1, Result: result, Error: text, KeepLeft: time.Minute}
		h := &History{Key: "k", Events: []*Event{
			{
				Call: Call{Kind: Claim, Client: 1, Start: 0, Owner: "first", Fingerprint: 1, Lease: time.Minute},
				Outcome: Outcome{Verdict: Done, End: 10 * ms, Record: &SeenRecord{
					State: onlyonce.StateProcessing, Owner: "first", Fingerprint: 1, Attempt: 1, Fence: 7, Created: 1, LeaseLeft: time.Minute,
				}},
			},
			{Call: Call{Kind: Settle, Client: 1, Start: 20 * ms, Owner: "first", Fence: 7, State: onlyonce.StateUnknown, Keep: 40 * time.Millisecond}, Outcome: Outcome{Verdict: Done, End: 30 * ms}},
			{Call: next, Outcome: Outcome{Verdict: Done, End: 400 * ms, Fences: []SeenFence{{9, start * ms}}, Record: seen}},
			{Call: Call{Kind: Lookup, Client: 3, Start: 300 * ms}, Outcome: Outcome{Verdict: NotFound, End: 310 * ms}},
			{Call: Call{Kind: Rows, Client: 3, Start: 320 * ms}, Outcome: Outcome{Verdict: Done, End: 330 * ms}},
		}}
		if f := h.check(10_000); (f == nil) != explained {
			t.Errorf("began after %d ms: found %+v", start, f)
		}
	}
}

// A store that repeats a claim until its timeout ends may take the command with each repetition,
// and lose it again while the response is lost.
func TestPlantedBugs_AClaimMayHaveTakenTheCommandOnlyAsOftenAsItIsSent(t *testing.T) {
	const ms = int64(time.Millisecond)
	lease := 40 * time.Millisecond
	claim := func(client, resends int, owner string, start, end int64, attempt int, fence, created int64) *Event {
		return &Event{
			Resends: resends,
			Call:    Call{Kind: Claim, Client: client, Start: start * ms, Owner: owner, Fingerprint: 1, Lease: lease, TakeUnknown: true, RetryFailed: true},
			Outcome: Outcome{Verdict: Done, End: end * ms, Record: &SeenRecord{
				State: onlyonce.StateProcessing, Owner: owner, Fingerprint: 1, Attempt: attempt, Fence: fence, Created: created, LeaseLeft: lease,
			}},
		}
	}
	for resends, explained := range map[int]bool{0: false, 3: true} {
		h := &History{Key: "k", Events: []*Event{
			claim(1, resends, "slow", 0, 2000, 6, 60, 1), // it had attempts 2 and 4, too
			claim(2, resends, "first", 1, 20, 1, 10, 1),
			claim(2, resends, "third", 150, 170, 3, 30, 1),
			claim(3, resends, "fifth", 450, 470, 5, 50, 1),
		}}
		if f := h.check(100_000); (f == nil) != explained {
			t.Errorf("%d times: found %+v", resends, f)
		}
	}
}

// On DynamoDB, a lock is data. If a transaction cannot reach the server to release its lock, the
// lock ends with its lease.
func TestPlantedBugs_ACommandIsBusyAfterATransactionOnlyIfThatCouldNotReleaseIt(t *testing.T) {
	const (
		releasing = int64(10 * time.Second)
		lease     = int64(time.Minute)
	)
	for _, c := range []struct {
		name      string
		end, next int64 // of the transaction, and of the claim after it
		explained bool
	}{
		{"the transaction had no time to give up", releasing - 1, releasing, false},
		{"the lock is left", releasing, releasing + 1, true},
		{"the lock has ended", releasing, releasing + lease + 1, false},
	} {
		h := &History{Key: "k", Events: []*Event{
			{
				Releasing: time.Duration(releasing),
				Call:      Call{Kind: RunTx, Client: 1, Start: 0, Owner: "me", Fingerprint: 1, Lease: time.Duration(lease), Ending: GivesUp},
				Outcome:   Outcome{Verdict: Own, End: c.end, Fences: []SeenFence{{7, 1}}},
			},
			{
				Call:    Call{Kind: Claim, Client: 1, Start: c.next, Owner: "next", Fingerprint: 2, Lease: time.Minute},
				Outcome: Outcome{Verdict: Done, End: c.next + 1, Record: &SeenRecord{State: onlyonce.StateProcessing, Fingerprint: 1, Busy: true}},
			},
		}}
		if f := h.check(10_000); (f == nil) != c.explained {
			t.Errorf("%s: found %+v", c.name, f)
		}
	}
}

// A client that reads the business rows from the database, past the store, may see rows that a
// failover undoes. A client to which the store has returned the settled record may not.
func TestPlantedBugs_AFailoverUndoesNoRecordThatTheStoreHasReturned(t *testing.T) {
	settle := Call{Kind: SettleTx, Client: 1, Start: 20, Owner: "me", Fence: 7, State: onlyonce.StateFailed, Keep: time.Minute, Row: "row", Ending: Commits}
	result, _ := settle.resultAndError()
	settled := &SeenRecord{State: onlyonce.StateFailed, Owner: "me", Fingerprint: 1, Attempt: 1, Fence: 7, Result: result, Created: 1, KeepLeft: time.Minute}
	for _, c := range []struct {
		name      string
		undone    bool
		shown     Event
		left      []string
		explained bool
	}{
		{"rows", true, Event{Call: Call{Kind: Rows}, Outcome: Outcome{Verdict: Done, Rows: []string{"row"}}}, nil, true},
		{"rows, without a failover", false, Event{Call: Call{Kind: Rows}, Outcome: Outcome{Verdict: Done, Rows: []string{"row"}}}, nil, false},
		{"the settled record", true, Event{Call: Call{Kind: Lookup}, Outcome: Outcome{Verdict: Done, Record: settled}}, nil, false},
		{"the settled record, and the row is left", true, Event{Call: Call{Kind: Lookup}, Outcome: Outcome{Verdict: Done, Record: settled}}, []string{"row"}, true},
	} {
		c.shown.Client, c.shown.Start, c.shown.End, c.shown.Process = 2, 80, 90, 2
		h := &History{Key: "k", MayUndo: c.undone, Events: []*Event{
			{
				Call:    Call{Kind: Claim, Client: 1, Start: 0, Owner: "me", Fingerprint: 1, Lease: time.Minute},
				Process: 1,
				Outcome: Outcome{Verdict: Done, End: 10, Record: &SeenRecord{
					State: onlyonce.StateProcessing, Owner: "me", Fingerprint: 1, Attempt: 1, Fence: 7, Created: 1, LeaseLeft: time.Minute,
				}},
			},
			{Call: settle, Process: 1, Outcome: Outcome{Verdict: Doubt, End: 50}},
			&c.shown,
			{Call: Call{Kind: Rows, Client: 3, Start: 100}, Outcome: Outcome{Verdict: Done, End: 110, Rows: c.left}},
		}}
		if f := h.check(10_000); (f == nil) != c.explained {
			t.Errorf("%s: found %+v", c.name, f)
		}
	}
}
