package slots

import (
	"context"
	"net/http"
	"slices"
	"time"
)

// Take takes a slot for the request to which w responds. It returns nil if there
// is none in time. The caller gives the slot back. The tenant is that of a request
// with a key; "": it is not known.
func (s *Slots) Take(w http.ResponseWriter, r *http.Request, keyed bool, tenant string) *Slot {
	from := addressOf(r)
	var sl *Slot
	var q *waiter
	s.mu.Lock()
	s.tenants.see(tenant)
	if c := s.client(from); s.fits(keyed, tenant) {
		sl = s.grant(c, keyed, tenant)
	} else {
		q = s.enqueue(c, keyed, tenant)
		s.drop(c)
	}
	s.mu.Unlock()
	if q != nil {
		sl = s.wait(r.Context(), q)
	}
	if sl != nil {
		sl.response.open(w, r, (*http.ResponseController).SetWriteDeadline, "read too little of its response, and nothing")
	}
	return sl
}

// GiveBack gives the slot to the next request. It returns why the response was
// ended, if it was.
func (sl *Slot) GiveBack() (ended error) {
	ended = sl.response.close()
	if sl.body != nil {
		_ = sl.body.transfer.close()
	}
	s := sl.of
	s.mu.Lock()
	defer s.mu.Unlock()
	if sl.next != nil {
		sl.next.prev = sl.prev
	}
	if sl.prev != nil {
		sl.prev.next = sl.next
	} else {
		s.first = sl.next
	}
	s.held--
	if !sl.keyed {
		s.heldUnkeyed--
	}
	s.tenants.release(sl.tenant)
	sl.client.slots--
	s.drop(sl.client)
	sl.tenant = ""
	sl.client, sl.body, sl.prev, sl.next = nil, nil, nil, nil
	slotPool.Put(sl)
	s.serve()
	return ended
}

// serve gives free slots to waiters: to the one whose address holds the fewest
// slots and, of several, to the first.
func (s *Slots) serve() {
	for {
		best := -1
		for i, q := range s.queue {
			if s.fits(q.keyed, q.tenant) && (best < 0 || q.client.slots < s.queue[best].client.slots) {
				best = i
			}
		}
		if best < 0 {
			return
		}
		q := s.queue[best]
		s.dequeue(best)
		q.gets <- s.grant(q.client, q.keyed, q.tenant)
	}
}

// wait waits until the waiter gets a slot, or may not wait any longer.
func (s *Slots) wait(ctx context.Context, q *waiter) *Slot {
	over, look := time.NewTimer(slotWait), time.NewTicker(slotCheck)
	defer over.Stop()
	defer look.Stop()
	for {
		s.makeRoom()
		select {
		case got := <-q.gets:
			return got
		case <-look.C:
			continue
		case <-over.C:
		case <-ctx.Done():
		}
		return s.cancelWait(q)
	}
}

// cancelWait ends a wait, which may have succeeded just before.
func (s *Slots) cancelWait(q *waiter) *Slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.queue, q)
	if i < 0 {
		return <-q.gets
	}
	s.dequeue(i)
	s.drop(q.client)
	return nil
}

// enqueue returns a place in the queue, or nil. When the queue is full, the
// address with the most places loses its last one to an address with fewer.
func (s *Slots) enqueue(c *client, keyed bool, tenant string) *waiter {
	if len(s.queue) == s.most {
		last := 0
		for i, q := range s.queue {
			if q.client.waits >= s.queue[last].client.waits {
				last = i
			}
		}
		q := s.queue[last]
		if q.client.waits <= c.waits+1 {
			return nil
		}
		s.dequeue(last)
		q.gets <- nil
	}
	q := &waiter{client: c, keyed: keyed, tenant: tenant, gets: make(chan *Slot, 1)}
	c.waits++
	s.queue = append(s.queue, q)
	return q
}

func (s *Slots) dequeue(i int) {
	s.queue[i].client.waits--
	s.queue = slices.Delete(s.queue, i, i+1)
}
