package main

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// ownHosts refuses what is not sent to this machine by name, or comes from a page
// of another site. A page in a browser of this machine can reach a server that
// listens on loopback, under a name of its own that points there; where callers
// need no token, such a page would be one. What it gets is forbidden.
func ownHosts(allowed []string, forbidden http.HandlerFunc, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !ownHost(r.Host, allowed) || !ownOrigin(r.Header.Values("Origin"), allowed) {
			forbidden(w, r)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// forbid answers 403 in the form of the API that is asked; why says what to do
// instead.
func (a *app) forbid(why string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch apiOf(r) {
		case itemsPath:
			a.items.Forbid(w, r, why)
		case sandboxesPath:
			a.sandboxes.Forbid(w, r, why)
		case ordersPath:
			a.orders.Forbid(w, r, why)
		default:
			http.Error(w, why, http.StatusForbidden)
		}
	}
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

// ownOrigin is the same of what a browser says of the page. Without one it is no
// browser, or no page of another site.
func ownOrigin(origins, allowed []string) bool {
	for _, origin := range origins {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || !ownHost(u.Host, allowed) {
			return false
		}
	}
	return true
}

// forOperators lets in clients on this machine, unless they are proxies for
// others or pages in a browser, and clients with a token.
func (a *app) forOperators(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		local := comesFrom(r, loopback) && !passedOn(r.Header) &&
			ownHost(r.Host, a.hosts) && ownOrigin(r.Header.Values("Origin"), a.hosts)
		if _, known := bearerOf(r, a.tokens); !local && !known {
			http.Error(w, "this is for callers on the same machine, or with a token", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
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
