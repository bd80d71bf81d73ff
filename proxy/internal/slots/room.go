package slots

import (
	"slices"
	"time"
)

// A slotStall is a stall of a request that holds a slot.
type slotStall struct {
	slot *Slot
	stall
}

// makeRoom ends requests that wait for their clients while others wait for slots.
func (s *Slots) makeRoom() {
	for _, in := range s.overdue() {
		in.end()
	}
}

// overdue returns the stalls to end: those that have lasted longest, and no more
// than requests wait. It returns none if it was called a moment ago.
func (s *Slots) overdue() (ends []slotStall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Sub(s.looked) < slotCheck {
		return nil
	}
	s.looked = now
	stalls, ending := s.stalls(now)
	need := len(s.queue) - ending
	for _, q := range s.queue {
		if need <= 0 {
			break
		}
		i := slices.IndexFunc(stalls, func(in slotStall) bool { return s.makesRoomFor(q, in) })
		if i < 0 {
			continue
		}
		stalls[i].slot.client.ends++
		ends = append(ends, stalls[i])
		stalls = slices.Delete(stalls, i, i+1)
		need--
	}
	return ends
}

// stalls returns all stalls, the longest first, and how many slots are about to
// be given back because their requests have already been ended.
func (s *Slots) stalls(now time.Time) (all []slotStall, ending int) {
	for _, c := range s.clients {
		c.ends = 0
	}
	for sl := s.first; sl != nil; sl = sl.next {
		in, stalls, ends := sl.response.stalled(now)
		if !stalls && !ends && sl.body != nil {
			in, stalls, ends = sl.body.transfer.stalled(now)
		}
		switch {
		case ends:
			ending++
			sl.client.ends++
		case stalls:
			all = append(all, slotStall{sl, in})
		}
	}
	slices.SortFunc(all, func(a, b slotStall) int { return a.since.Compare(b.since) })
	return all, ending
}

// makesRoomFor reports whether the stall may be ended for the waiter, which then
// gets its slot.
func (s *Slots) makesRoomFor(q *waiter, in slotStall) bool {
	c := in.slot.client
	if !s.isFull(q.keyed) { // the waiter waits for other requests of its tenant
		return in.spent && in.slot.tenant == q.tenant
	}
	if !q.keyed && in.slot.keyed && s.heldUnkeyed >= s.unkeyed {
		return false
	}
	return in.spent || c != q.client && 2*(c.slots-c.ends) > s.most
}
