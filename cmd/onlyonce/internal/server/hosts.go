package server

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// OwnHosts rejects requests whose Host is not this machine, or whose Origin is another
// site, with the handler forbidden. A page in a browser on this machine can reach a
// server on loopback, under a host name of its own that resolves there (DNS rebinding);
// without this check, it could act as a caller without a token.
func OwnHosts(allowed []string, forbidden http.HandlerFunc, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !ownHost(r.Host, allowed) || !ownOrigin(r.Header.Values("Origin"), allowed) {
			forbidden(w, r)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// ownHost reports whether a Host is this machine, or one of those allowed.
func ownHost(host string, allowed []string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if ip, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return ip.Unmap().IsLoopback() || slices.Contains(allowed, strings.Trim(host, "[]"))
	}
	return host == "localhost" || slices.Contains(allowed, host)
}

// ownOrigin reports whether the Origin headers name this machine, or one of the allowed
// hosts. A request without an Origin does not come from a page of another site.
func ownOrigin(origins, allowed []string) bool {
	for _, origin := range origins {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || !ownHost(u.Host, allowed) {
			return false
		}
	}
	return true
}

// IsLocal reports whether a client on this machine sent a request itself: no proxy
// passed it on, and no page in a browser made it under a name that is not allowed.
func IsLocal(r *http.Request, allowed []string) bool {
	return ComesFrom(r, Loopback) && !passedOn(r.Header) && ownHost(r.Host, allowed) && ownOrigin(r.Header.Values("Origin"), allowed)
}

// passedOn reports whether a proxy has passed a request on: most name the client, or
// themselves, in one of these headers.
func passedOn(h http.Header) bool {
	for name := range h {
		switch name {
		case "Via", "Forwarded", "X-Forwarded", "X-Real-Ip", "Client-Ip", "X-Client-Ip", "X-Cluster-Client-Ip", "X-Originating-Ip",
			"X-Original-Forwarded-For", "True-Client-Ip", "Fastly-Client-Ip", "Cf-Connecting-Ip", "Cf-Connecting-Ipv6", "Do-Connecting-Ip", "Cdn-Loop":
			return true
		}
		if strings.HasPrefix(name, "X-Forwarded-") || strings.HasPrefix(name, "X-Envoy-") {
			return true
		}
	}
	return false
}

// Hosts returns the names under which a server on address may be called: its host,
// and others.
func Hosts(address string, others ...string) (names []string) {
	if host, _, err := net.SplitHostPort(address); err == nil && host != "" {
		names = append(names, strings.ToLower(host))
	}
	for _, name := range others {
		names = append(names, strings.ToLower(name))
	}
	return names
}

// ComesFrom reports whether the client is at one of the addresses.
func ComesFrom(r *http.Request, prefixes []netip.Prefix) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	at := peer.Addr().Unmap().WithZone("")
	for _, p := range prefixes {
		if p.Contains(at) {
			return true
		}
	}
	return false
}

// Loopback holds the addresses of this machine.
var Loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// Reachable returns an address at which a server that listens on addr can be reached
// from its own machine.
func Reachable(addr net.Addr) string {
	at := addr.(*net.TCPAddr)
	if at.IP.IsUnspecified() {
		at = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: at.Port}
	}
	return at.String()
}

// Where says, for people, at which addresses a server can be reached that listens on addr. The URL is the one
// with its Reachable address.
func Where(url string, addr net.Addr) string {
	if addr.(*net.TCPAddr).IP.IsUnspecified() {
		return url + " (and on every other address of this machine)"
	}
	return url
}
