package console

import (
	"net/netip"
	"sync"
	"time"
)

const (
	loginBurst = 5                // failed logins of an address at once
	loginEvery = 10 * time.Second // between further ones
	allBurst   = 100              // failed logins of all addresses at once
	allEvery   = time.Second / 2  // between further ones
	maxClients = 4096             // addresses that are remembered
)

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

// logins limits how often tokens can be tried.
type logins struct {
	mu      sync.Mutex
	all     bucket
	clients map[netip.Prefix]bucket
}

// allow reports whether a client may try a token. Each attempt counts until succeed says
// that it was valid, so that attempts at the same time count, too.
func (l *logins) allow(client netip.Prefix, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all.full(now, allBurst, allEvery) || l.clients[client].full(now, loginBurst, loginEvery) {
		return false
	}
	if l.clients == nil || len(l.clients) >= maxClients {
		l.forget(now)
	}
	l.all, l.clients[client] = l.all.add(now, allEvery), l.clients[client].add(now, loginEvery)
	return true
}

// forget makes room for addresses.
func (l *logins) forget(now time.Time) {
	if l.clients == nil {
		l.clients = make(map[netip.Prefix]bucket)
	}
	for client, b := range l.clients {
		if time.Time(b).Before(now) {
			delete(l.clients, client)
		}
	}
	if len(l.clients) >= maxClients {
		clear(l.clients) // l.all still counts
	}
}

// succeed forgives the client its attempts.
func (l *logins) succeed(client netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.clients, client)
}

// clientOf returns the network of a client: of an IPv6 address, the first 64 bits.
func clientOf(remote string) netip.Prefix {
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
