package proxy

import (
	"net/http"
	"strings"

	"github.com/onlyonce-go/onlyonce/internal/httpfield"
	"github.com/onlyonce-go/onlyonce/proxy/internal/syntax"
)

// sensitiveHeaders are the protected headers: no Connection header may name them, and
// their other spellings are not passed on. Names are canonical.
type sensitiveHeaders struct {
	protected  map[string]bool
	configured map[string]bool // Config.Protected: TrustProtected decides about them
}

func newSensitiveHeaders() sensitiveHeaders {
	n := sensitiveHeaders{map[string]bool{}, map[string]bool{}}
	for _, name := range []string{
		"Authorization", "Proxy-Authorization", "Cookie", "Host", "Content-Length", "Content-Type", "Content-Encoding",
		"Transfer-Encoding", "Expect", "Prefer", "Via", "Idempotency-Key",
	} {
		n.protected[name] = true
	}
	return n
}

// has reports whether the header with the canonical name is protected.
func (n *sensitiveHeaders) has(name string) bool {
	return n.protected[name] || strings.HasPrefix(name, "Idempotency-") || isForwardingHeader(name)
}

// listedInConnection returns a protected header that a Connection header names, or "".
func (n *sensitiveHeaders) listedInConnection(h http.Header) string {
	for _, list := range h["Connection"] {
		if list == "keep-alive" || list == "close" || list == "Upgrade" {
			continue
		}
		for name := range strings.SplitSeq(list, ",") {
			if name = spelled(strings.Trim(name, " \t")); n.has(name) {
				return name
			}
		}
	}
	return ""
}

// isProxyHeader reports whether only the proxy may set a header, in requests or in
// responses.
func isProxyHeader(name string) bool {
	return name == httpfield.Attempt || name == httpfield.Fence || httpfield.OfResponse(name)
}

// isMethodOverride reports whether some servers replace the request's method or path
// with the value of a header. Gunicorn obeys Path-Info and Script-Name. CGI programs
// use Proxy as the address of their own proxy.
func isMethodOverride(name string) bool {
	switch name {
	case "X-Http-Method-Override", "X-Http-Method", "X-Method-Override", "X-Original-Method",
		"X-Original-Url", "X-Original-Uri", "X-Original-Path", "X-Rewrite-Url", "X-Override-Url", "X-Http-Path-Override", "X-Request-Uri", "Request-Uri", "X-Script-Name", "X-Matched-Path", "X-Original-Host", "X-Http-Host-Override", "X-Host",
		"Proxy", "Path-Info", "Script-Name":
		return true
	}
	return false
}

// originPrefixes are the prefixes of headers with which proxies identify the client.
var originPrefixes = [...]string{
	"X-Forwarded-", "X-Real-", "X-Remote-", "Remote-", "X-Auth-Request-", "X-Authenticated-", "X-Webauth-", "X-Consumer-", "X-Credential-",
	"X-Ssl-", "Ssl-", "X-Client-Cert", "Client-Cert", "X-Tls-", "X-Goog-Authenticated-User-", "X-Ms-Client-Principal", "X-Amzn-Oidc-",
	"Cf-Access-", "X-Authentik-", "X-Pomerium-", "X-Envoy-", "Tailscale-User-",
	"X-Arr-", "X-Appgw-", "X-Appengine-", "X-Azure-", "X-Vercel-", "X-Goog-Iap-", "X-Vouch-", "X-Auth-User", "Wl-Proxy-", "Oidc-",
}

// isForwardingHeader reports whether a header identifies the client, which only a
// trusted proxy may do.
func isForwardingHeader(name string) bool {
	switch name {
	case "Forwarded", "Client-Ip", "X-Client-Ip", "X-Cluster-Client-Ip", "True-Client-Ip", "Fastly-Client-Ip", "Cf-Connecting-Ip", "Cf-Connecting-Ipv6",
		"X-Original-Forwarded-For", "X-Originating-Ip", "X-Verified-User", "X-Anonymous-Consumer", "X-Subject-Dn",
		"X-Forwarded", "X-Userinfo", "X-Scheme", "X-Url-Scheme", "Do-Connecting-Ip", "Front-End-Https":
		return true
	}
	for _, prefix := range originPrefixes {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// spelled returns the canonical name under which CGI-like servers (RFC 3875, WSGI,
// Rack, PHP) read a header: some of them replace everything but letters and digits by
// an underscore.
func spelled(name string) string {
	if httpfield.IsUnambiguous(name) {
		return http.CanonicalHeaderKey(name)
	}
	b := []byte(name)
	for i, c := range b {
		if !syntax.IsAlphanumeric(c) {
			b[i] = '-'
		}
	}
	return http.CanonicalHeaderKey(string(b))
}

// strip deletes the headers of a client that are never passed on, including other
// spellings of protected headers, and those that only a trusted proxy may set.
func (n *sensitiveHeaders) strip(h http.Header, trusted, keepOverrides bool) {
	for name := range h {
		is := spelled(name)
		switch {
		case is != name && !httpfield.IsUnambiguous(name) && (n.has(is) || isMethodOverride(is)),
			isProxyHeader(is),
			isMethodOverride(is) && !keepOverrides && !n.configured[is],
			isForwardingHeader(is) && !trusted && !n.configured[is]:
			delete(h, name)
		}
	}
}

// isHopByHop reports whether a header applies to one connection only and is not
// forwarded (RFC 9110, section 7.6.1).
func isHopByHop(name string) bool {
	return httpfield.OfConnection(name) || name == "Proxy-Authenticate" || name == "Trailer"
}

// dropRequestTrailers deletes the trailers of a request under names that matter in its
// header: a server that merges the two would read a value that no check has seen.
func (rt *route) dropRequestTrailers(trailer http.Header) {
	for name := range trailer {
		is := spelled(name)
		if rt.sensitive.has(is) || isProxyHeader(is) || isMethodOverride(is) || isHopByHop(is) || syntax.IsForbiddenInTrailer(is) || rt.replaces(name) {
			delete(trailer, name)
		}
	}
}

// dropProxyHeaders deletes the headers and trailers that only the proxy may set.
func dropProxyHeaders(h http.Header) {
	for name := range h {
		if isProxyHeader(spelled(strings.TrimPrefix(name, http.TrailerPrefix))) {
			delete(h, name)
		}
	}
}

// dropTrailers deletes, once the header of a response has been sent, the trailers that
// only the proxy may set, and those that must not follow a body. An announced trailer
// has its own name in h, any other one has http.TrailerPrefix.
func dropTrailers(h http.Header) {
	dropProxyHeaders(h)
	for name := range h {
		if syntax.IsForbiddenInTrailer(strings.TrimPrefix(name, http.TrailerPrefix)) {
			delete(h, name)
		}
	}
}
