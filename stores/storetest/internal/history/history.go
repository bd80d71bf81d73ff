// Package history checks the results that many callers got for one command: whether the claims can have been
// granted, renewed and settled by the rules of a store, in some order.
package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// An Act is one call in the history of a command, as its caller saw it: it took
// effect, if it did, at some instant between From and To.
type Act struct {
	Hold     onlyonce.Hold
	Kind     string // claim (one that was granted), renew or settle
	Attempt  int    // of a claim
	Lease    time.Duration
	Lasts    bool // the settlement completed the command for longer than the history
	Lost     bool // it was rejected with ErrLost
	From, To time.Duration
}

// A tenure is all that one holder of a command did, in order.
type tenure struct {
	claim Act
	then  []Act
}

// Check checks the history of one command, and returns the rules that it breaks.
func Check(history []Act) []string {
	ts := tenures(history)
	var broken []string
	for i, t := range ts {
		if i > 0 {
			broken = append(broken, t.follows(ts[i-1])...)
		}
		for _, other := range ts {
			if other.claim.Hold == t.claim.Hold {
				continue
			}
			if from, to := t.sure(); other.claim.From > from && other.claim.To < to {
				broken = append(broken, fmt.Sprintf("fence %d was issued while fence %d was held", other.claim.Hold.Fence, t.claim.Hold.Fence))
			}
		}
		broken = append(broken, t.checkEnd(ts[i+1:])...)
	}
	return broken
}

// tenures sorts a history by holder, in the order of their fences.
func tenures(history []Act) []tenure {
	byHold := map[onlyonce.Hold]*tenure{}
	for _, a := range history {
		if a.Kind == "claim" {
			byHold[a.Hold] = &tenure{claim: a}
		}
	}
	for _, a := range history {
		if a.Kind != "claim" {
			byHold[a.Hold].then = append(byHold[a.Hold].then, a)
		}
	}
	var ts []tenure
	for _, t := range byHold {
		slices.SortFunc(t.then, func(a, b Act) int { return cmp.Compare(a.From, b.From) })
		ts = append(ts, *t)
	}
	slices.SortFunc(ts, func(a, b tenure) int { return cmp.Compare(a.claim.Hold.Fence, b.claim.Hold.Fence) })
	return ts
}

// follows checks a tenure against the one with the next lower fence.
func (t tenure) follows(last tenure) (broken []string) {
	a, b := last.claim, t.claim
	if a.Hold.Fence == b.Hold.Fence {
		broken = append(broken, fmt.Sprintf("fence %d was issued twice", a.Hold.Fence))
	}
	if b.To < a.From {
		broken = append(broken, fmt.Sprintf("fence %d was issued before fence %d", b.Hold.Fence, a.Hold.Fence))
	}
	if b.Attempt != 1 && (b.Attempt <= a.Attempt && !last.endsRecord() || b.To-a.From < t.unseen(last)) {
		broken = append(broken, fmt.Sprintf("attempt %d of fence %d follows attempt %d", b.Attempt, b.Hold.Fence, a.Attempt))
	}
	return broken
}

// unseen returns how long the attempts between two tenures must have lasted. Nobody saw them:
// a claim whose lease lapses before its call returns may find that another has taken over.
// Since nobody could settle them, the lease of each lapsed, and that of the tenure before
// them, unless it was settled. If the attempts were counted from the start, the first was unseen.
func (t tenure) unseen(last tenure) time.Duration {
	n := t.claim.Attempt - last.claim.Attempt - 1
	if t.claim.Attempt <= last.claim.Attempt {
		n = t.claim.Attempt - 1
	}
	if n <= 0 {
		return 0
	}
	if !last.settled() {
		n++
	}
	return time.Duration(n) * min(t.claim.Lease, last.claim.Lease)
}

func (t tenure) settled() bool {
	return slices.ContainsFunc(t.then, func(a Act) bool { return a.Kind == "settle" && !a.Lost })
}

// endsRecord reports whether the record may have been released, or have expired, after the
// tenure, so that attempts are counted from the start.
func (t tenure) endsRecord() bool {
	return t.settled() && !slices.ContainsFunc(t.then, func(a Act) bool { return a.Lasts && !a.Lost })
}

// sure returns the time in which the holder can be sure to have held the
// command: from when it knew, until its lease, counted from before it asked,
// would end, or until it settled.
func (t tenure) sure() (from, to time.Duration) {
	to = t.claim.From + t.claim.Lease
	for _, a := range t.then {
		if a.Kind == "settle" {
			return t.claim.To, min(to, a.From)
		}
		if !a.Lost {
			to = a.From + a.Lease
		}
	}
	return t.claim.To, to
}

// checkEnd checks what a holder was told when it renewed and settled, against the
// tenures with higher fences.
func (t tenure) checkEnd(later []tenure) (broken []string) {
	settled := false
	for _, a := range t.then {
		over := slices.ContainsFunc(later, func(l tenure) bool { return l.claim.To < a.From })
		maybe := slices.ContainsFunc(later, func(l tenure) bool { return l.claim.From < a.To }) ||
			len(later) > 0 && later[0].unseen(t) > 0
		switch {
		case !a.Lost && over && !settled:
			broken = append(broken, fmt.Sprintf("fence %d could %s after a higher one was issued", a.Hold.Fence, a.Kind))
		case a.Lost && !maybe && !settled:
			broken = append(broken, fmt.Sprintf("fence %d was lost to nobody", a.Hold.Fence))
		}
		if a.Kind == "settle" && !a.Lost && !settled {
			settled = true
			broken = append(broken, a.stays(later)...)
		}
	}
	return broken
}

// stays checks that a command that was completed for long is not granted again.
func (a Act) stays(later []tenure) (broken []string) {
	for _, l := range later {
		if a.Lasts && l.claim.To > a.From {
			broken = append(broken, fmt.Sprintf("fence %d was issued after fence %d had completed", l.claim.Hold.Fence, a.Hold.Fence))
		}
	}
	return broken
}
