package serving

import (
	"net/http"
	"net/netip"
	"sync"
)

// maxInFlight is how many requests of one caller an API serves at a time. What a
// request takes of the memory, its body and its response, it may hold for as long as
// its client is slow.
const maxInFlight = 512

// A caller is who sends a request: a name, or an address if no Authorization proves
// the name. Without one a client may name itself as it likes. An address of IPv6 is its
// /64 network, all of which usually belongs to one client.
type caller struct {
	name    string
	address netip.Prefix
}

func callerOf(r *http.Request, name func(*http.Request) string) caller {
	if len(r.Header["Authorization"]) > 0 {
		if known := name(r); known != "" {
			return caller{name: known}
		}
	}
	peer, _ := netip.ParseAddrPort(r.RemoteAddr)
	address := peer.Addr().Unmap()
	network, _ := address.Prefix(min(address.BitLen(), 64))
	return caller{address: network}
}

// callers counts the requests of each caller that are being served.
type callers struct {
	mu      sync.Mutex
	serving map[caller]int
}

// enter counts a request, and reports false if the caller has as many as it may have.
func (c *callers) enter(who caller) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.serving[who] >= maxInFlight {
		return false
	}
	if c.serving == nil {
		c.serving = make(map[caller]int)
	}
	c.serving[who]++
	return true
}

func (c *callers) leave(who caller) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.serving[who]--; c.serving[who] == 0 {
		delete(c.serving, who)
	}
}
