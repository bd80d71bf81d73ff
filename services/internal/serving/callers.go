package serving

import (
	"net/http"
	"net/netip"
	"sync"
)

// maxInFlight is the largest number of concurrent requests of one caller to an API. A
// request can hold the memory of its body and its response for as long as its client
// is slow.
const maxInFlight = 512

// A caller is the sender of a request: a name, or an address if the request has no
// Authorization, because a client can then choose any name. An IPv6 address counts as
// its /64 network, which usually belongs to one client.
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

// enter counts a request. It returns false, and counts nothing, if the caller has
// reached the limit.
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
