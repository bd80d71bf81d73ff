package proxy

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/proxy/internal/jsonkey"
)

// newRoute makes a route of one that has been checked. usage counts what it uses,
// unless it has a Usage of its own.
func newRoute(r Route, l *upstreamConns, cfg *Config, usage *httponce.Usage) *route {
	made := &route{Route: r, cfg: cfg, link: l, pattern: r.Pattern}
	if r.Method != "" {
		made.pattern = r.Method + " " + r.Pattern
		if made.Idempotency.Methods == nil {
			made.Idempotency.Methods = []string{r.Method}
		}
	}
	made.lower = lowerPattern(made.pattern)
	if l.KeepHost { // which then selects the site
		made.Idempotency.FingerprintHeaders = append(slices.Clone(made.Idempotency.FingerprintHeaders), "Host")
	}
	made.through = made.reverseProxy()
	made.header = http.CanonicalHeaderKey(cmp.Or(made.Idempotency.Header, httponce.DefaultHeader))
	if r.KeyPointer != "" {
		pointer, _ := jsonkey.Parse(r.KeyPointer) // checked
		made.Idempotency.KeyInBody = pointer.Key
	}
	if made.Idempotency.Usage == nil {
		made.Idempotency.Usage = usage
	}
	made.replaced = map[string]bool{}
	for _, name := range r.DropHeader {
		made.replaced[spelled(name)] = true
	}
	for name := range r.SetHeader {
		made.replaced[spelled(name)] = true
	}
	if r.Guard != nil {
		made.once = httponce.Wrap(r.Guard, http.HandlerFunc(made.serveUnkeyed), made.Idempotency)
	}
	return made
}

func (rt *route) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if rt.Guard == nil || isGRPC(r) && !rt.Idempotency.Required {
		rt.forward(w, r)
		return
	}
	rt.once.ServeHTTP(w, r)
}

// serveUnkeyed serves what httponce lets through.
func (rt *route) serveUnkeyed(w http.ResponseWriter, r *http.Request) {
	if a := onlyonce.Current(r.Context()); a != nil || w.Header().Get("Idempotency-Protected") != "" {
		rt.send(w, r, a)
		return
	}
	rt.forward(w, r)
}
