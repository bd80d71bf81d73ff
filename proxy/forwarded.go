package proxy

import (
	"net"
	"net/http"
	"strings"

	"github.com/onlyonce-go/onlyonce/proxy/internal/h1"
	"github.com/onlyonce-go/onlyonce/proxy/internal/syntax"
)

// origin is where a request came from, as its headers tell the upstream.
type origin struct {
	client, host, proto     string
	forwardedFor, forwarded string // the values that a trusted proxy has sent
}

// originOf returns the origin of a request. It trusts the headers of the request:
// those that an untrusted client sent have been dropped.
func originOf(r *http.Request) origin {
	o := origin{host: r.Host, proto: "http"}
	o.client, _, _ = net.SplitHostPort(r.RemoteAddr)
	if r.TLS != nil {
		o.proto = "https"
	}
	o.forwardedFor = strings.Join(r.Header["X-Forwarded-For"], ", ")
	o.forwarded = strings.Join(r.Header["Forwarded"], ", ")
	if h := r.Header["X-Forwarded-Host"]; len(h) == 1 && syntax.IsHost(h[0]) {
		o.host = h[0]
	}
	if p := r.Header["X-Forwarded-Proto"]; len(p) == 1 && (p[0] == "http" || p[0] == "https") {
		o.proto = p[0]
	}
	return o
}

// appendFor appends the value of X-Forwarded-For.
func (o *origin) appendFor(b []byte) []byte {
	if b = append(b, o.forwardedFor...); o.forwardedFor != "" && o.client != "" {
		b = append(b, ", "...)
	}
	return append(b, o.client...)
}

// appendForwarded appends the value of Forwarded (RFC 7239).
func (o *origin) appendForwarded(b []byte) []byte {
	if b = append(b, o.forwarded...); o.forwarded != "" {
		b = append(b, ", "...)
	}
	switch b = append(b, "for="...); {
	case o.client == "":
		b = append(b, "unknown"...)
	case strings.IndexByte(o.client, ':') >= 0:
		b = append(append(append(b, `"[`...), o.client...), `]"`...)
	default:
		b = append(b, o.client...)
	}
	if o.host != "" {
		b = append(append(append(b, `;host="`...), o.host...), '"')
	}
	return append(append(b, ";proto="...), o.proto...)
}

// writeForwarded writes the headers with the origin of the request.
func writeForwarded(q *h1.Request, r *http.Request) {
	o := originOf(r)
	if o.client != "" || o.forwardedFor != "" {
		q.FieldFunc("X-Forwarded-For", o.appendFor)
	}
	q.Field("X-Forwarded-Host", o.host)
	q.Field("X-Forwarded-Proto", o.proto)
	q.FieldFunc("Forwarded", o.appendForwarded)
}

// setForwarded sets the headers with the origin of the request.
func setForwarded(h http.Header, r *http.Request) {
	o := originOf(r)
	values := make([]string, 0, 4)
	set := func(name, value string) {
		values = append(values, value)
		h[name] = values[len(values)-1 : len(values) : len(values)]
	}
	if o.forwardedFor != "" {
		set("X-Forwarded-For", string(o.appendFor(nil)))
	} else if o.client != "" {
		set("X-Forwarded-For", o.client)
	}
	set("X-Forwarded-Host", o.host)
	set("X-Forwarded-Proto", o.proto)
	set("Forwarded", string(o.appendForwarded(make([]byte, 0, 128))))
}
