package proxy

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// slots bound how many requests are with an upstream at a time, and share them
// among the addresses from which requests come.
type slots struct {
	most    int // requests
	unkeyed int // of them, those without a key

	mu          sync.Mutex
	held        int
	heldUnkeyed int
	first       *slot // of those that are held
	clients     map[netip.Addr]*client
	queue       []*waiter // in the order in which they came
	looked      time.Time // when requests to end were last looked for
}

// A client is an address that holds slots or waits for them.
type client struct {
	addr  netip.Addr
	slots int
	waits int
	ends  int // of its slots, those that are about to be given back; only overdue uses it
}

// A slot is one request's until it is given back.
type slot struct {
	of         *slots
	client     *client
	keyed      bool
	prev, next *slot
	answer     transfer
	body       *timedBody // nil: it has come before the slot was taken
}

// A waiter is a request that waits for a slot.
type waiter struct {
	client *client
	keyed  bool
	gets   chan *slot // nil: its place in the queue is another's
}

const (
	// slotWait is how long a request waits for a slot.
	slotWait = time.Second
	// slotCheck is how often requests to end are looked for meanwhile.
	slotCheck = slotWait / 10
)

var errBusy = errors.New("the upstream has as many requests as MaxConns allows")

func newSlots(n int) slots {
	return slots{most: n, unkeyed: n - n/4, clients: map[netip.Addr]*client{}}
}

var (
	slotPool   = sync.Pool{New: func() any { return new(slot) }}
	clientPool = sync.Pool{New: func() any { return new(client) }}
)

// take takes a slot for the request that w answers, or returns nil if there was
// none in time. It is to be given back.
func (s *slots) take(w http.ResponseWriter, r *http.Request, keyed bool) *slot {
	from := addressOf(r)
	var sl *slot
	var q *waiter
	s.mu.Lock()
	if c := s.client(from); s.fits(keyed) {
		sl = s.grant(c, keyed)
	} else {
		q = s.enqueue(c, keyed)
		s.drop(c)
	}
	s.mu.Unlock()
	if q != nil {
		sl = s.wait(r.Context(), q)
	}
	if sl != nil {
		sl.answer.open(w, r, (*http.ResponseController).SetWriteDeadline, "took too little of its answer, and nothing")
	}
	return sl
}

// watch makes the request's body one that may be ended.
func (sl *slot) watch(body *timedBody) {
	sl.of.mu.Lock()
	defer sl.of.mu.Unlock()
	sl.body = body
}

// giveBack gives the slot to the next, and returns why the request's answer was
// ended, if it was.
func (sl *slot) giveBack() (ended error) {
	ended = sl.answer.close()
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
	sl.client.slots--
	s.drop(sl.client)
	sl.client, sl.body, sl.prev, sl.next = nil, nil, nil, nil
	slotPool.Put(sl)
	s.serve()
	return ended
}

// serve gives free slots to those that wait: to the one whose address holds
// fewest, and of several to the first.
func (s *slots) serve() {
	for {
		best := -1
		for i, q := range s.queue {
			if s.fits(q.keyed) && (best < 0 || q.client.slots < s.queue[best].client.slots) {
				best = i
			}
		}
		if best < 0 {
			return
		}
		q := s.queue[best]
		s.dequeue(best)
		q.gets <- s.grant(q.client, q.keyed)
	}
}

// wait waits until the waiter gets a slot, for as long as it may.
func (s *slots) wait(ctx context.Context, q *waiter) *slot {
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
		return s.leave(q)
	}
}

// leave ends a wait. It may have come to its end just before.
func (s *slots) leave(q *waiter) *slot {
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
// address with most places gives up its last for one that has fewer.
func (s *slots) enqueue(c *client, keyed bool) *waiter {
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
	q := &waiter{client: c, keyed: keyed, gets: make(chan *slot, 1)}
	c.waits++
	s.queue = append(s.queue, q)
	return q
}

func (s *slots) dequeue(i int) {
	s.queue[i].client.waits--
	s.queue = slices.Delete(s.queue, i, i+1)
}

// fits reports whether a slot is free. A quarter is kept for requests with a key.
func (s *slots) fits(keyed bool) bool {
	return s.held < s.most && (keyed || s.heldUnkeyed < s.unkeyed)
}

func (s *slots) grant(c *client, keyed bool) *slot {
	sl := slotPool.Get().(*slot)
	sl.of, sl.client, sl.keyed, sl.next = s, c, keyed, s.first
	if sl.next != nil {
		sl.next.prev = sl
	}
	s.first = sl
	c.slots++
	s.held++
	if !keyed {
		s.heldUnkeyed++
	}
	return sl
}

func (s *slots) client(addr netip.Addr) *client {
	c := s.clients[addr]
	if c == nil {
		c = clientPool.Get().(*client)
		c.addr = addr
		s.clients[addr] = c
	}
	return c
}

// drop forgets a client that has nothing.
func (s *slots) drop(c *client) {
	if c.slots == 0 && c.waits == 0 {
		delete(s.clients, c.addr)
		clientPool.Put(c)
	}
}

// addressOf returns the address that the request's connection is from. Of IPv6 it
// is the network, which one client has for itself.
func addressOf(r *http.Request) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	addr := peer.Addr().Unmap().WithZone("")
	if addr.Is6() {
		network, _ := addr.Prefix(64)
		addr = network.Addr()
	}
	return addr
}
