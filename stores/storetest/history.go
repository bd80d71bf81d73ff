package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// An act is one call in the history of a command, as its caller saw it: it took
// effect, if it did, at some instant between from and to.
type act struct {
	hold     onlyonce.Hold
	kind     string // claim (one that was given), renew or settle
	attempt  int    // of a claim
	lease    time.Duration
	end      onlyonce.Settlement // of a settlement
	lost     bool                // it was rejected with ErrLost
	from, to time.Duration
}

// A tenure is all that one holder of a command did, in order.
type tenure struct {
	claim act
	then  []act
}

// verdicts checks the history of one command, and returns the rules that it
// breaks.
func verdicts(history []act) []string {
	ts := tenures(history)
	var broken []string
	for i, t := range ts {
		if i > 0 {
			broken = append(broken, t.follows(ts[i-1])...)
		}
		for _, other := range ts {
			if other.claim.hold == t.claim.hold {
				continue
			}
			if from, to := t.sure(); other.claim.from > from && other.claim.to < to {
				broken = append(broken, fmt.Sprintf("fence %d was given while fence %d was held", other.claim.hold.Fence, t.claim.hold.Fence))
			}
		}
		broken = append(broken, t.ends(ts[i+1:])...)
	}
	return broken
}

// tenures sorts a history by holder, in the order of their fences.
func tenures(history []act) []tenure {
	byHold := map[onlyonce.Hold]*tenure{}
	for _, a := range history {
		if a.kind == "claim" {
			byHold[a.hold] = &tenure{claim: a}
		}
	}
	for _, a := range history {
		if a.kind != "claim" {
			byHold[a.hold].then = append(byHold[a.hold].then, a)
		}
	}
	var ts []tenure
	for _, t := range byHold {
		slices.SortFunc(t.then, func(a, b act) int { return cmp.Compare(a.from, b.from) })
		ts = append(ts, *t)
	}
	slices.SortFunc(ts, func(a, b tenure) int { return cmp.Compare(a.claim.hold.Fence, b.claim.hold.Fence) })
	return ts
}

// follows checks a tenure against the one with the next lower fence.
func (t tenure) follows(last tenure) (broken []string) {
	a, b := last.claim, t.claim
	if a.hold.Fence == b.hold.Fence {
		broken = append(broken, fmt.Sprintf("fence %d was given twice", a.hold.Fence))
	}
	if b.to < a.from {
		broken = append(broken, fmt.Sprintf("fence %d was given before fence %d", b.hold.Fence, a.hold.Fence))
	}
	if b.attempt != a.attempt+1 && b.attempt != 1 {
		broken = append(broken, fmt.Sprintf("attempt %d of fence %d follows attempt %d", b.attempt, b.hold.Fence, a.attempt))
	}
	return broken
}

// sure returns the time in which the holder can be sure to have held the
// command: from when it knew, until its lease, counted from before it asked,
// would end, or until it settled.
func (t tenure) sure() (from, to time.Duration) {
	to = t.claim.from + t.claim.lease
	for _, a := range t.then {
		if a.kind == "settle" {
			return t.claim.to, min(to, a.from)
		}
		if !a.lost {
			to = a.from + a.lease
		}
	}
	return t.claim.to, to
}

// ends checks what a holder was told when it renewed and settled, against the
// tenures with higher fences.
func (t tenure) ends(later []tenure) (broken []string) {
	settled := false
	for _, a := range t.then {
		over := slices.ContainsFunc(later, func(l tenure) bool { return l.claim.to < a.from })
		maybe := slices.ContainsFunc(later, func(l tenure) bool { return l.claim.from < a.to })
		switch {
		case !a.lost && over && !settled:
			broken = append(broken, fmt.Sprintf("fence %d could %s after a higher one was given", a.hold.Fence, a.kind))
		case a.lost && !maybe && !settled:
			broken = append(broken, fmt.Sprintf("fence %d was lost to nobody", a.hold.Fence))
		}
		if a.kind == "settle" && !a.lost && !settled {
			settled = true
			broken = append(broken, a.stays(later)...)
		}
	}
	return broken
}

// stays checks that a command that was completed for long is not given again.
func (a act) stays(later []tenure) (broken []string) {
	for _, l := range later {
		if a.end.State == onlyonce.StateCompleted && a.end.Keep == long && l.claim.to > a.from {
			broken = append(broken, fmt.Sprintf("fence %d was given after fence %d had completed", l.claim.hold.Fence, a.hold.Fence))
		}
	}
	return broken
}
