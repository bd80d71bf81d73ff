package proxy

import (
	"slices"
	"time"
)

// makeRoom ends requests that wait for their clients while others wait for slots.
func (s *slots) makeRoom() {
	for _, in := range s.overdue() {
		in.end()
	}
}

// overdue returns the stalls to end, those that have lasted longest, and no more
// than requests wait; or none, if somebody has just looked.
func (s *slots) overdue() (ends []*stall) {
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
		i := slices.IndexFunc(stalls, func(in *stall) bool { return s.makesRoomFor(q, in) })
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

// stalls returns all stalls, the longest first, and how many slots
// are about to be given back because an earlier look ended their requests.
func (s *slots) stalls(now time.Time) (stalls []*stall, ending int) {
	for _, c := range s.clients {
		c.ends = 0
	}
	for sl := s.first; sl != nil; sl = sl.next {
		in, ends := sl.answer.stalled(sl, now)
		if in == nil && !ends && sl.body != nil {
			in, ends = sl.body.transfer.stalled(sl, now)
		}
		switch {
		case ends:
			ending++
			sl.client.ends++
		case in != nil:
			stalls = append(stalls, in)
		}
	}
	slices.SortFunc(stalls, func(a, b *stall) int { return a.since.Compare(b.since) })
	return stalls, ending
}

// makesRoomFor reports whether the stall may be ended for the waiter, which then
// gets its slot.
func (s *slots) makesRoomFor(q *waiter, in *stall) bool {
	c := in.slot.client
	if !q.keyed && in.slot.keyed && s.heldUnkeyed >= s.unkeyed {
		return false
	}
	return in.spent || c != q.client && 2*(c.slots-c.ends) > s.most
}
