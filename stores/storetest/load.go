package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

var historyRules = []rule{
	{"whatever many holders do at once, no history breaks a rule", func(t *storeTest) {
		l := &load{storeTest: t, start: time.Now(), acts: map[onlyonce.ID][]act{}}
		together(8, func(int) {
			for range 20 {
				for !l.turn(rand.IntN(len(l.round))) {
					time.Sleep(rand.N(poll))
				}
			}
		})
		var all, taken int
		for id, history := range l.acts {
			for _, broken := range verdicts(history) {
				t.Errorf("%q: %s", id.Key, broken)
			}
			for _, a := range history {
				all++
				if a.attempt > 1 {
					taken++
				}
			}
		}
		t.Logf("%d acts on %d commands, %d of them take-overs", all, len(l.acts), taken)
	}},
}

// holding is the leases of a load: long enough to do something, short enough
// to lapse often.
const holding = 4 * time.Millisecond

// A load is what many holders do to a few commands, and what they saw.
type load struct {
	*storeTest
	start time.Time
	round [5]atomic.Int64 // each command is followed by another once it is completed for long

	mu   sync.Mutex
	acts map[onlyonce.ID][]act
}

// turn claims a command, and does something with it if it is given.
func (l *load) turn(n int) (given bool) {
	round := l.round[n].Load()
	c := claimOf(fmt.Sprint("command ", n, ", round ", round))
	c.Lease, c.RetryFailed, c.TakeUnknown = holding, rand.IntN(4) > 0, rand.IntN(4) > 0
	a := act{kind: "claim", lease: c.Lease, from: time.Since(l.start)}
	r, err := l.store.Claim(l.ctx, c)
	if err != nil {
		l.Errorf("claim: %v", err)
		return true
	}
	if r.Owner != c.Owner {
		l.look(r)
		return false
	}
	a.hold, a.attempt = holdOf(r), r.Attempt
	l.note(a)
	for range rand.IntN(3) {
		l.renewing(a.hold)
	}
	if rand.IntN(3) == 0 {
		l.stall(a.hold)
	}
	if rand.IntN(8) == 0 {
		return true // as if the process had died
	}
	end := l.ending(r)
	if l.settling(a.hold, end) && end.State == onlyonce.StateCompleted && end.Keep == long {
		l.round[n].CompareAndSwap(round, round+1)
	}
	if rand.IntN(4) == 0 {
		l.settling(a.hold, end)
	}
	return true
}

func (l *load) ending(r onlyonce.Record) onlyonce.Settlement {
	text := fmt.Sprintf("%x", r.Owner)
	all := []onlyonce.Settlement{
		completed(text), keeping(completed(text), poll), failed(text), keeping(failed(text), poll), unknown(text), {},
	}
	return all[rand.IntN(len(all))]
}

// look checks that a record is of one piece.
func (l *load) look(r onlyonce.Record) {
	text := map[onlyonce.State]string{
		onlyonce.StateCompleted: string(r.Result.Body), onlyonce.StateFailed: r.Error, onlyonce.StateUnknown: r.Error,
	}
	if got, settled := text[r.State]; settled && got != fmt.Sprintf("%x", r.Owner) {
		l.Errorf("the record is %s with another's %q", describe(r), got)
	}
}

// stall waits until the hold's lease has lapsed, or another has the command.
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
	a := act{hold: h, kind: "renew", lease: holding, from: time.Since(l.start)}
	a.lost = l.isLost(l.store.Renew(l.ctx, h, a.lease, nil))
	l.note(a)
}

func (l *load) settling(h onlyonce.Hold, end onlyonce.Settlement) bool {
	a := act{hold: h, kind: "settle", end: end, from: time.Since(l.start)}
	a.lost = l.isLost(l.store.Settle(l.ctx, h, end))
	l.note(a)
	return !a.lost
}

func (l *load) isLost(err error) bool {
	if err != nil && !errors.Is(err, onlyonce.ErrLost) {
		l.Errorf("renew or settle: %v", err)
	}
	return err != nil
}

func (l *load) note(a act) {
	a.to = time.Since(l.start)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acts[a.hold.ID] = append(l.acts[a.hold.ID], a)
}
