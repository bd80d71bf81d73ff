// Package slots bounds how many requests are with an upstream at a time. A free
// slot goes to the address that holds the fewest, and no tenant takes all of them
// while others come. While requests wait, it ends those whose clients are too slow
// to read their responses or to send their bodies.
package slots

import (
	"errors"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Slots bound how many requests are with an upstream at a time. They are shared
// among the addresses from which requests come.
type Slots struct {
	most    int // requests
	unkeyed int // of them, those without a key

	mu          sync.Mutex
	held        int
	heldUnkeyed int
	first       *Slot // of those that are held
	clients     map[netip.Addr]*client
	tenants     tenants
	queue       []*waiter // in the order in which they came
	looked      time.Time // when requests to end were last searched for
}

// A client is an address that holds slots or waits for them.
type client struct {
	addr  netip.Addr
	slots int
	waits int
	ends  int // those of its slots that are about to be given back; used by overdue only
}

// A Slot belongs to one request until it is given back.
type Slot struct {
	of         *Slots
	client     *client
	keyed      bool
	tenant     string // of the request if it has a key; "": not known
	prev, next *Slot
	response   transfer
	body       *TimedBody // nil: it was received before
}

// A waiter is a request that waits for a slot.
type waiter struct {
	client *client
	keyed  bool
	tenant string
	gets   chan *Slot // nil: its place in the queue was given to another
}

const (
	// slotWait is how long a request waits for a slot.
	slotWait = time.Second
	// slotCheck is how often requests to end are searched for meanwhile.
	slotCheck = slotWait / 10
)

// ErrBusy says that there was no slot in time.
var ErrBusy = errors.New("the upstream has as many requests as MaxConns allows")

// New returns n slots, of which a quarter is reserved for requests with a key.
func New(n int) *Slots {
	return &Slots{most: n, unkeyed: n - n/4, clients: map[netip.Addr]*client{}}
}

var (
	slotPool   = sync.Pool{New: func() any { return new(Slot) }}
	clientPool = sync.Pool{New: func() any { return new(client) }}
)

// Watch allows the request's body to be ended while others wait for the slot.
func (sl *Slot) Watch(body *TimedBody) {
	sl.of.mu.Lock()
	defer sl.of.mu.Unlock()
	sl.body = body
}

// fits reports whether a slot is free for a request. A quarter of all is reserved
// for requests with a key.
func (s *Slots) fits(keyed bool, tenant string) bool {
	return !s.isFull(keyed) && s.tenants.admit(tenant, s.most-s.held)
}

// isFull reports whether no slot is free for requests of this kind, of any tenant.
func (s *Slots) isFull(keyed bool) bool {
	return s.held >= s.most || !keyed && s.heldUnkeyed >= s.unkeyed
}

func (s *Slots) grant(c *client, keyed bool, tenant string) *Slot {
	sl := slotPool.Get().(*Slot)
	sl.of, sl.client, sl.keyed, sl.tenant, sl.next = s, c, keyed, tenant, s.first
	if sl.next != nil {
		sl.next.prev = sl
	}
	s.first = sl
	c.slots++
	s.held++
	if !keyed {
		s.heldUnkeyed++
	}
	s.tenants.acquire(tenant)
	return sl
}

func (s *Slots) client(addr netip.Addr) *client {
	c := s.clients[addr]
	if c == nil {
		c = clientPool.Get().(*client)
		c.addr = addr
		s.clients[addr] = c
	}
	return c
}

// drop removes a client that holds nothing and does not wait.
func (s *Slots) drop(c *client) {
	if c.slots == 0 && c.waits == 0 {
		delete(s.clients, c.addr)
		clientPool.Put(c)
	}
}

// addressOf returns the address of the request's client. For IPv6 it is the /64
// network, all of which usually belongs to one client.
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
