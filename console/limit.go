package console

import (
	"crypto/sha256"
	"net/netip"
	"sync"
	"time"
)

const (
	loginBurst = 5                // failed logins of a client at once
	loginEvery = 10 * time.Second // between further ones
	allBurst   = 100              // failed logins of all addresses at once
	allEvery   = time.Second / 2  // between further ones
	maxClients = 4096             // clients that are remembered
)

// A client is the unit for which failed logins are counted: the browsers in which a token was valid
// before, so that nobody else can use up their attempts, or else an address.
type client struct {
	token   [sha256.Size]byte // its hash, or zero
	network netip.Prefix
}

// isKnown reports whether a token was valid in the client's browser before.
func (c client) isKnown() bool { return c.token != [sha256.Size]byte{} }

// A bucket is when its failures would be forgiven.
type bucket time.Time

// full reports whether the next failure would be one too many.
func (b bucket) full(now time.Time, burst int, every time.Duration) bool {
	return time.Time(b).Sub(now) > time.Duration(burst-1)*every
}

// add returns the bucket with one failure more.
func (b bucket) add(now time.Time, every time.Duration) bucket {
	if time.Time(b).Before(now) {
		b = bucket(now)
	}
	return bucket(time.Time(b).Add(every))
}

// remove returns the bucket with one failure less.
func (b bucket) remove(every time.Duration) bucket { return bucket(time.Time(b).Add(-every)) }

// logins limits how often tokens can be tried.
type logins struct {
	mu      sync.Mutex
	all     bucket
	clients map[client]bucket
}

// allow reports whether a client may try a token. Each attempt counts until succeed says
// that it was valid, so that attempts at the same time count, too.
func (l *logins) allow(from client, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.clients[from].full(now, loginBurst, loginEvery) || !from.isKnown() && l.all.full(now, allBurst, allEvery) {
		return false
	}
	if l.clients == nil || len(l.clients) >= maxClients {
		l.forget(now)
	}
	l.clients[from] = l.clients[from].add(now, loginEvery)
	if !from.isKnown() {
		l.all = l.all.add(now, allEvery)
	}
	return true
}

// forget makes room for clients.
func (l *logins) forget(now time.Time) {
	if l.clients == nil {
		l.clients = make(map[client]bucket)
	}
	for from, b := range l.clients {
		if time.Time(b).Before(now) {
			delete(l.clients, from)
		}
	}
	if len(l.clients) >= maxClients {
		clear(l.clients) // l.all still counts
	}
}

// succeed forgives a client its attempt, and none of the failed ones.
func (l *logins) succeed(from client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b, counted := l.clients[from]; counted {
		l.clients[from] = b.remove(loginEvery)
	}
	if !from.isKnown() {
		l.all = l.all.remove(allEvery)
	}
}

// networkOf returns the network of a client: of an IPv6 address, the first 64 bits.
func networkOf(remote string) netip.Prefix {
	peer, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	at, bits := peer.Addr().Unmap().WithZone(""), 64
	if at.Is4() {
		bits = 32
	}
	network, _ := at.Prefix(bits) // bits fit the address
	return network
}
