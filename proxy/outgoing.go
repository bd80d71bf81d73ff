package proxy

import (
	"errors"
	"net/http"
	"slices"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/httpfield"
	"github.com/onlyonce-go/onlyonce/proxy/internal/h1"
	"github.com/onlyonce-go/onlyonce/proxy/internal/syntax"
)

// A bufferedBody is a body that httponce has received completely.
type bufferedBody interface{ Len() int }

var errUnreceived = errors.New("the request's body has not been received completely")

// outgoing returns the request that is sent to the upstream. The body of r must have
// been received.
func (rt *route) outgoing(r *http.Request, a *onlyonce.Attempt) (*h1.Request, error) {
	n := r.ContentLength
	if received, ok := r.Body.(bufferedBody); ok {
		n = int64(received.Len())
	}
	if n < 0 {
		return nil, errUnreceived
	}
	query := ""
	if r.URL.RawQuery != "" || r.URL.ForceQuery {
		query = "?"
	}
	q := h1.NewRequest(r.Method, rt.conns.base, r.URL.EscapedPath(), query, r.URL.RawQuery)
	if rt.conns.KeepHost {
		q.Field("Host", r.Host)
	} else {
		q.Field("Host", rt.conns.URL.Host)
	}
	for name, vs := range r.Header {
		if rt.sends(name, r.Header) {
			q.Fields(name, vs)
		}
	}
	for name, vs := range rt.SetHeader {
		q.Fields(name, vs)
	}
	if rt.conns.OneRequestPerConn {
		q.Field("Connection", "close")
	}
	if a != nil {
		rec := a.Record()
		q.Number(httpfield.Attempt, int64(rec.Attempt))
		q.Number(httpfield.Fence, rec.Fence)
	}
	writeForwarded(q, r)
	if a == nil && n == 0 && !announcesEmptyBody(r.Method) {
		q.NoBody()
		return q, nil
	}
	if err := q.Body(r.Body, n); err != nil {
		q.Release()
		return nil, err
	}
	return q, nil
}

// announcesEmptyBody reports whether a request with the method has a Content-Length even
// if it has no body (RFC 9110, section 8.6).
func announcesEmptyBody(method string) bool {
	return method == http.MethodPost || method == http.MethodPut || method == http.MethodPatch
}

// sends reports whether a client's header is sent to the upstream unchanged.
func (rt *route) sends(name string, h http.Header) bool {
	switch name {
	case "Content-Length", "Host", "Expect", "Proxy-Authorization", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto":
		return false
	}
	return !isHopByHop(name) && !rt.replaces(name) && !listed(h["Connection"], name)
}

// replaces reports whether the route drops or replaces a client's header, in any
// spelling.
func (rt *route) replaces(name string) bool {
	return len(rt.replaced) > 0 && rt.replaced[spelled(name)]
}

// listed reports whether one of the comma-separated lists contains the name.
func listed(lists []string, name string) bool {
	return slices.ContainsFunc(lists, func(list string) bool { return syntax.HasToken(list, name) })
}
