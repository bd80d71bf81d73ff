package proxy

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/internal/httpfield"
	"github.com/onlyonce-go/onlyonce/proxy/internal/jsonkey"
)

// newRoute returns a route for a Route that has been checked. usage counts its
// memory and stored bytes unless it has its own Usage.
func newRoute(r Route, l *upstreamConns, cfg *Config, sensitive *sensitiveHeaders, usage *httponce.Usage) *route {
	made := &route{Route: r, cfg: cfg, sensitive: sensitive, conns: l, pattern: r.Pattern}
	if r.Method != "" {
		made.pattern = r.Method + " " + r.Pattern
		if made.Idempotency.Methods == nil {
			made.Idempotency.Methods = []string{r.Method}
		}
	}
	made.lower = lowerPattern(made.pattern)
	if l.KeepHost { // the host selects the site
		made.Idempotency.FingerprintHeaders = append(slices.Clone(made.Idempotency.FingerprintHeaders), "Host")
	}
	made.passThrough = made.reverseProxy()
	made.header = http.CanonicalHeaderKey(cmp.Or(made.Idempotency.Header, httponce.DefaultHeader))
	if r.KeyPointer != "" {
		pointer, _ := jsonkey.Parse(r.KeyPointer) // checked
		made.Idempotency.KeyInBody = pointer.Key
	}
	if made.Idempotency.StatusOf == nil {
		made.Idempotency.StatusOf = statusOfCall
	}
	made.Idempotency.UnknownStatus = unknownStatus(made.Idempotency.UnknownStatus)
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
		made.protected = httponce.Wrap(r.Guard, http.HandlerFunc(made.serveAdmitted), made.Idempotency)
	}
	return made
}

// statusOfCall is the default of Idempotency.StatusOf. A timeout does not count as a
// failure, after which a repeat would run: the command may have taken effect.
func statusOfCall(response onlyonce.Result) int {
	status := httponce.RPCStatus(response)
	if status == http.StatusGatewayTimeout {
		return response.Status
	}
	return status
}

func (rt *route) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if rt.Guard == nil || isGRPC(r) && !rt.Idempotency.Required {
		rt.forward(w, r)
		return
	}
	rt.protected.ServeHTTP(w, r)
}

// serveAdmitted serves the requests that the middleware lets through: an attempt, a
// keyed request that runs without the store, and requests without a key.
func (rt *route) serveAdmitted(w http.ResponseWriter, r *http.Request) {
	if a := onlyonce.Current(r.Context()); a != nil || w.Header().Get(httpfield.Protected) != "" {
		rt.send(w, r, a)
		return
	}
	rt.forward(w, r)
}
