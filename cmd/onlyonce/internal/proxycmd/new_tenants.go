package proxycmd

import (
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/logging"
	"github.com/onlyonce-go/onlyonce/httponce"
)

// newTenants limits how many new tenants one address may introduce, where any client
// can invent tenants. It counts in this process only.
type newTenants struct {
	perMinute float64
	trusted   []netip.Prefix // proxies in front, whose X-Forwarded-For is trusted
	log       *slog.Logger
	warned    logging.Limit

	mu             sync.Mutex
	known, earlier map[string]struct{} // tenants that have been seen
	addresses      map[netip.Addr]*spending
	others         spending  // shared by the addresses beyond rememberAddresses
	searched       time.Time // when addresses that have used nothing last were
}

// A spending is how much of its limit an address has used, at a time.
type spending struct {
	used float64
	at   time.Time
}

// fall lowers the used amount to its value at the time now.
func (s *spending) fall(now time.Time, perMinute float64) {
	s.used = max(s.used-now.Sub(s.at).Minutes()*perMinute, 0)
	s.at = now
}

const (
	// rememberTenants is how many tenants, at least, are remembered as not new.
	rememberTenants = 1 << 15
	// rememberAddresses is how many addresses are counted separately.
	rememberAddresses = 1 << 14
)

func newTenantLimit(perMinute int, trusted []netip.Prefix, log *slog.Logger) *newTenants {
	return &newTenants{
		perMinute: float64(perMinute), trusted: trusted, log: log,
		known: make(map[string]struct{}), addresses: make(map[netip.Addr]*spending),
	}
}

var tooManyTenants = httponce.Problem{
	Code: httponce.CodeTooManyRequests, Status: http.StatusTooManyRequests, Title: "Too many requests",
	Detail: "Too many different credentials have come from this address. Nothing was done. Send the request again later, with the same key.", Retryable: true,
}

// reject is an httponce.Config.Reject.
func (n *newTenants) reject(r *http.Request, tenant string) *httponce.Problem {
	wait := n.enter(n.addressOf(r), tenant)
	if wait <= 0 {
		return nil
	}
	if n.warned.Allow() {
		n.log.Warn("an address introduced more new tenants than tenant.new_per_address allows: if it is one of your proxies, add it to forwarded.trust; others are not logged for ten seconds", "from", r.RemoteAddr)
	}
	p := tooManyTenants
	p.RetryAfter = wait
	return &p
}

// enter admits a tenant that is known, or that its address may introduce. Otherwise it
// returns how long until the address may.
func (n *newTenants) enter(address netip.Addr, tenant string) (wait time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.known[tenant]; ok {
		return 0
	}
	if _, ok := n.earlier[tenant]; !ok {
		s := n.of(address)
		s.fall(time.Now(), n.perMinute)
		if over := s.used + 1 - n.perMinute; over > 0 {
			return max(time.Duration(over/n.perMinute*float64(time.Minute)), time.Second)
		}
		s.used++
	}
	if len(n.known) >= rememberTenants {
		n.known, n.earlier = make(map[string]struct{}), n.known
	}
	n.known[tenant] = struct{}{}
	return 0
}

// of returns the spending of an address. The caller holds the lock.
func (n *newTenants) of(address netip.Addr) *spending {
	if s := n.addresses[address]; s != nil {
		return s
	}
	if now := time.Now(); len(n.addresses) >= rememberAddresses && now.Sub(n.searched) >= time.Second {
		n.searched = now
		for a, s := range n.addresses {
			if s.fall(now, n.perMinute); s.used == 0 {
				delete(n.addresses, a)
			}
		}
	}
	if len(n.addresses) >= rememberAddresses {
		return &n.others
	}
	s := &spending{at: time.Now()}
	n.addresses[address] = s
	return s
}

// addressOf returns the address of the client: the peer or, behind trusted proxies,
// the last address of X-Forwarded-For that is not one of theirs. For IPv6 it is the /64
// network, all of which usually belongs to one client.
func (n *newTenants) addressOf(r *http.Request) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	address := peer.Addr().Unmap().WithZone("")
	forwarded := strings.Split(strings.Join(r.Header["X-Forwarded-For"], ","), ",")
	for i := len(forwarded) - 1; i >= 0 && n.trusts(address); i-- {
		before, err := netip.ParseAddr(strings.TrimSpace(forwarded[i]))
		if err != nil {
			break
		}
		address = before.Unmap().WithZone("")
	}
	if address.Is6() {
		network, _ := address.Prefix(64)
		address = network.Addr()
	}
	return address
}

func (n *newTenants) trusts(address netip.Addr) bool {
	for _, p := range n.trusted {
		if p.Contains(address) {
			return true
		}
	}
	return false
}
