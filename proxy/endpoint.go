package proxy

import (
	"net/http"
	"net/http/httputil"

	"github.com/onlyonce-go/onlyonce/httponce"
)

// A route is a Route with everything that serves it.
type route struct {
	Route
	cfg      *Config
	link     *upstreamConns
	pattern  string // of ServeMux: with the method
	lower    string // the same for paths in lower case
	once     http.Handler
	through  httputil.ReverseProxy
	header   string          // of the key
	replaced map[string]bool // headers of a client that are not sent on
}

// reject rejects a request with a problem in the route's own form.
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
