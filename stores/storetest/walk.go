package storetest

import (
	"maps"
	"math/rand/v2"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// walkRules compare the records of a store with the functions that define how a record
// changes: onlyonce's Claim.Takes, Claim.Next and Record.Settled.
var walkRules = []rule{
	{"a record changes as Takes, Next and Settled say, in every state", func(t *storeTest) {
		const walks, steps = 20, 25
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		for n := range uint64(walks) {
			w := &walk{storeTest: t, rand: rand.New(rand.NewPCG(seed, n)), id: idOf(string(rune('a' + n)))}
			for range steps {
				if w.step(); t.Failed() {
					t.Fatalf("after %v", w.log)
				}
			}
		}
	}},
}

// A walk is a random history of one command, with the record that it should have.
type walk struct {
	*storeTest
	rand *rand.Rand
	id   onlyonce.ID
	log  []string

	want   *onlyonce.Record // nil: there is none
	claim  onlyonce.Claim   // the last one that was granted
	former onlyonce.Hold    // the hold before it
	fence  int64            // the highest so far
}

func (w *walk) step() {
	w.Helper()
	steps := []struct {
		name string
		do   func()
	}{
		{"claim", w.claims},
		{"claim", w.claims},
		{"claim again", w.repeats},
		{"renew", w.renews},
		{"lapse", w.lapses},
		{"settle", w.settles},
		{"settle", w.settles},
		{"settle late", w.settlesLate},
		{"resolve", w.decides},
	}
	s := steps[w.rand.IntN(len(steps))]
	w.log = append(w.log, s.name)
	s.do()
	if w.want == nil {
		w.mustBeAbsent(w.id)
		return
	}
	is := w.lookup(w.id)
	w.wantSame(*w.want, is)
	if (w.want.LeaseLeft > 0) != (is.LeaseLeft > 0) || (w.want.KeepLeft > 0) != (is.KeepLeft > 0) {
		w.Errorf("the record is %s, want %s", describe(is), describe(*w.want))
	}
}

func (w *walk) coin() bool { return w.rand.IntN(2) == 0 }

// claims claims as another caller.
func (w *walk) claims() {
	w.Helper()
	c := onlyonce.Claim{ID: w.id, Owner: newOwner(), Lease: long, RetryFailed: w.coin(), TakeUnknown: w.coin()}
	switch w.rand.IntN(4) {
	case 0:
		c.SkipFingerprint = true
	case 1:
		c.Fingerprint = onlyonce.Fingerprint([]byte("another order"))
	default:
		c.Fingerprint = onlyonce.Fingerprint([]byte("an order"))
	}
	is := w.storeTest.claim(c)
	if w.want != nil && !c.Takes(*w.want) {
		w.wantSame(*w.want, is)
		return
	}
	if is.Fence <= w.fence {
		w.Errorf("fence %d was issued after %d", is.Fence, w.fence)
	}
	next := c.Next(w.want)
	if next.Fence = is.Fence; w.want == nil {
		next.CreatedAt = is.CreatedAt
	}
	w.wantSame(next, is)
	w.former, w.claim, w.want, w.fence = holdOf(onlyonce.Record{ID: w.id, Owner: w.claim.Owner, Fence: w.fence}), c, &next, is.Fence
}

// repeats makes the last successful claim once more, as a caller does whose response was
// lost.
func (w *walk) repeats() {
	w.Helper()
	if w.want == nil || w.want.Owner != w.claim.Owner || w.want.LeaseLeft <= 0 {
		return
	}
	w.wantSame(*w.want, w.storeTest.claim(w.claim))
}

// holds reports whether the last successful claim still holds the command.
func (w *walk) holds() bool {
	return w.want != nil && w.want.State == onlyonce.StateProcessing && w.want.Owner == w.claim.Owner
}

func (w *walk) renews() {
	w.Helper()
	steps := map[string][]byte{string(rune('a' + w.rand.IntN(3))): {byte(w.rand.IntN(256))}}
	hold := onlyonce.Hold{ID: w.id, Owner: w.claim.Owner, Fence: w.fence}
	if !w.holds() {
		w.wantErr(onlyonce.ErrLost, "renew", w.store.Renew(w.ctx, hold, long, steps))
		return
	}
	w.renew(hold, long, steps)
	all := maps.Clone(w.want.Steps)
	if all == nil {
		all = make(map[string][]byte)
	}
	maps.Copy(all, steps)
	w.want.Steps, w.want.LeaseLeft = all, long
}

func (w *walk) lapses() {
	w.Helper()
	if w.holds() {
		w.want.LeaseLeft = min(w.awaitLapse(holdOf(*w.want)).LeaseLeft, 0)
	}
}

// settlement returns a random settlement; a zero one releases the command.
func (w *walk) settlement() onlyonce.Settlement {
	st := onlyonce.Settlement{Keep: []time.Duration{long, 0, onlyonce.KeepForever}[w.rand.IntN(3)]}
	switch w.rand.IntN(4) {
	case 0:
		st.State, st.Result = onlyonce.StateCompleted, completed("made").Result
	case 1:
		st.State, st.Error, st.Final = onlyonce.StateFailed, "no stock", w.coin()
	case 2:
		st.State, st.Error = onlyonce.StateUnknown, "no response"
	default:
		return onlyonce.Settlement{}
	}
	return st
}

// became applies a settlement to the expected record.
func (w *walk) became(st onlyonce.Settlement) {
	w.Helper()
	if st.State == "" {
		w.want = nil
		return
	}
	is := w.lookup(w.id)
	settled := w.want.Settled(st, is.SettledAt)
	w.want = &settled
}

func (w *walk) settles() {
	w.Helper()
	if w.want == nil || w.want.Owner != w.claim.Owner {
		w.wantErr(onlyonce.ErrLost, "settle", w.store.Settle(w.ctx, onlyonce.Hold{ID: w.id, Owner: w.claim.Owner, Fence: w.fence}, w.settlement()))
		return
	}
	open, st := w.holds(), w.settlement()
	w.settle(holdOf(*w.want), st)
	if open {
		w.became(st)
	}
}

func (w *walk) settlesLate() {
	w.Helper()
	if w.former.Owner != "" {
		w.wantErr(onlyonce.ErrLost, "settle by the hold before", w.store.Settle(w.ctx, w.former, w.settlement()))
	}
}

// decides resolves the record as a person does, if the store supports that.
func (w *walk) decides() {
	w.Helper()
	s, can := w.store.(onlyonce.Resolver)
	if !can {
		return
	}
	st := w.settlement()
	seen := onlyonce.Record{ID: w.id, Fence: w.fence}
	if w.want != nil {
		seen.State = w.want.State
	}
	err := s.Resolve(w.ctx, seen, st)
	switch {
	case w.want == nil:
		w.wantErr(onlyonce.ErrNotFound, "resolve", err)
	case w.want.State == onlyonce.StateProcessing && w.want.LeaseLeft > 0:
		w.wantErr(onlyonce.ErrInFlight, "resolve", err)
	case err != nil:
		w.Errorf("resolve: %v", err)
	case st.State == "":
		w.want = nil
	default:
		is := w.lookup(w.id)
		if is.Fence <= w.fence || is.Owner == w.want.Owner {
			w.Errorf("a resolution left %s of %s", describe(is), describe(*w.want))
		}
		w.want.Owner, w.want.Fence, w.fence = is.Owner, is.Fence, is.Fence
		w.became(st)
	}
}
