package proxy

import (
	"net/http"
	"net/http/httputil"

	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/internal/statuses"
)

// A route is a Route with everything that is needed to serve it.
type route struct {
	Route
	cfg         *Config
	sensitive   *sensitiveHeaders
	conns       *upstreamConns
	pattern     string                // for ServeMux, with the method
	lower       string                // the pattern in lower case
	protected   http.Handler          // the middleware round the upstream; nil: the route has no Guard
	passThrough httputil.ReverseProxy // for requests that are not protected
	header      string                // canonical name of the header with the key
	replaced    map[string]bool       // headers of a client that are not passed on
}

// leavesUnknown reports whether it is unknown, after a response with this status, whether the
// command took effect.
func (rt *route) leavesUnknown(status int) bool {
	return (status >= http.StatusInternalServerError || status == statuses.Canceled) && rt.Idempotency.UnknownStatus(status)
}

// unknownStatus returns the UnknownStatus of a route that was given own; nil: the default.
func unknownStatus(own func(int) bool) func(int) bool {
	if own == nil {
		return statuses.Set(nil).Unknown
	}
	return func(status int) bool { return status == statuses.Canceled || own(status) }
}

// reject rejects a request with a problem in the format of the route.
func (rt *route) reject(w http.ResponseWriter, r *http.Request, p httponce.Problem, why error) {
	p.Err = why
	rt.cfg.report(r, why)
	h := w.Header()
	if url := rt.Idempotency.DocsURL; url != "" {
		p.Type = url + "#" + p.Code
		h.Add("Link", "<"+url+`>; rel="describedby"`)
	}
	if rt.Idempotency.Problem != nil {
		rt.Idempotency.Problem(w, r, p)
		return
	}
	p.ServeHTTP(w, r)
}
