package proxycmd

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/bearer"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/logging"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/proxyfile"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/rejection"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/server"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/telemetry"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/internal/statuses"
	"github.com/onlyonce-go/onlyonce/proxy"
)

// A routeBuilder makes the proxy's routes from a file of settings. Upstreams and Guards
// whose settings do not change from one file to the next are kept, and with them
// connections and waiting requests.
type routeBuilder struct {
	store    onlyonce.Store
	secret   []byte // keys the fingerprints in it
	observer onlyonce.Observer
	tracing  *telemetry.Tracing

	operations atomic.Pointer[map[string]bool] // that the settings name, which log and metrics may show

	metrics   *trafficMetrics
	dropped   logging.Limit                              // of tenant headers
	guards    atomic.Pointer[map[policy]*onlyonce.Guard] // that the settings in effect use
	upstreams map[upstreamKey]*proxy.Upstream
}

// An upstreamKey has the settings of an upstream and a hash of its files.
type upstreamKey struct {
	settings proxyfile.Upstream
	files    [sha256.Size]byte
}

// A reusable has the parts of a file's routes that the routes of the next file may use again.
type reusable struct {
	guards    map[policy]*onlyonce.Guard
	upstreams map[upstreamKey]*proxy.Upstream
}

// build returns the routes, and the reusable to keep once the routes are in place.
func (b *routeBuilder) build(f *proxyfile.File, tenants tenantResolver) ([]proxy.Route, reusable, error) {
	ups, used, err := b.connections(f)
	if err != nil {
		return nil, reusable{}, err
	}
	guards := b.guardsFor(f)
	routes := make([]proxy.Route, 0, len(f.Routes)+1)
	all := false
	for i := range f.Routes {
		r := &f.Routes[i]
		name := r.Upstream
		if name == "" {
			name = f.Upstreams[0].Name
		}
		method, pattern := r.Pattern()
		route := b.route(&r.Settings, method, pattern, name, f, tenants)
		route.Guard, route.Upstream = guards[policyOf(&r.Settings)], ups[name]
		routes, all = append(routes, route), all || r.Match == "/"
	}
	if !all {
		name := f.Upstreams[0].Name
		route := b.route(&f.Defaults, "", "/", name, f, tenants)
		route.Guard, route.Upstream = guards[policyOf(&f.Defaults)], ups[name]
		route.Idempotency.Required = route.Idempotency.Required || f.Unmatched == proxyfile.UnmatchedReject
		if f.Defaults.Operation == "" {
			route.Idempotency.Operation = methodAndPath
		}
		routes = append(routes, route)
	}
	cfg := b.config(f)
	if err := proxy.Check(routes, cfg); err != nil {
		var at *proxy.RouteError
		if errors.As(err, &at) && at.Route < len(f.Routes) {
			return nil, reusable{}, f.Mistake(fmt.Sprintf("routes[%d]", at.Route), at.Err.Error())
		}
		return nil, reusable{}, err
	}
	return routes, reusable{guards, used}, nil
}

// config returns the settings that all routes share.
func (b *routeBuilder) config(f *proxyfile.File) proxy.Config {
	cfg := proxy.Config{BodyTimeout: f.Server.BodyTimeout, Problem: b.metrics.rejections("", rejectionWriter(f, &f.Defaults)), OnError: b.metrics.report}
	if f.Tenant.Header != "" {
		cfg.Protected = []string{f.Tenant.Header}
		trusted := trustedPeers(f.Tenant.From, f.TLS.ClientCA != "")
		cfg.TrustProtected = func(r *http.Request) bool {
			ok := trusted(r)
			if !ok {
				b.warnOfDropped(r)
			}
			return ok
		}
	}
	if trusted := f.Forwarded.Trust; len(trusted) > 0 {
		cfg.TrustForwarded = func(r *http.Request) bool { return server.ComesFrom(r, trusted) }
	}
	return cfg
}

// warnOfDropped logs a dropped tenant header: it may come from a gateway that is not
// configured.
func (b *routeBuilder) warnOfDropped(r *http.Request) {
	if b.dropped.Allow() {
		b.metrics.log.Warn("a tenant header was dropped: if it came from your gateway, add the gateway's address to tenant.from (--tenant-header-from); others are not logged for ten seconds", "from", r.RemoteAddr)
	}
}

// connections returns the upstreams by name and by key.
func (b *routeBuilder) connections(f *proxyfile.File) (byName map[string]*proxy.Upstream, used map[upstreamKey]*proxy.Upstream, err error) {
	byName, used = make(map[string]*proxy.Upstream), make(map[upstreamKey]*proxy.Upstream)
	for i, u := range f.Upstreams {
		key := upstreamKey{u, digest(u.TLS.CA, u.TLS.Cert, u.TLS.Key)}
		up := b.upstreams[key]
		if up == nil {
			if up, err = newUpstream(u, f.AcceptRisks); err != nil {
				return nil, nil, f.Mistake(fmt.Sprintf("upstreams[%d].tls", i), err.Error())
			}
		}
		used[key], byName[u.Name] = up, up
	}
	return byName, used, nil
}

func newUpstream(u proxyfile.Upstream, acceptRisks []string) (*proxy.Upstream, error) {
	secure, err := upstreamTLS(u.TLS, acceptRisks)
	return &proxy.Upstream{
		URL: u.Server(), TLS: secure, HTTP2: u.HTTP2, KeepHost: u.KeepHost,
		DialTimeout: u.Timeouts.Connect, TLSTimeout: u.Timeouts.Connect, HeaderTimeout: u.Timeouts.Response,
		StallTimeout: u.Timeouts.Stall, BodyTimeout: u.Timeouts.Body, KeepIdle: u.Timeouts.Idle, MaxConns: u.MaxConns, OneRequestPerConn: u.OneRequest,
	}, err
}

// route returns a route without its Guard and its Upstream.
func (b *routeBuilder) route(s *proxyfile.Settings, method, pattern, upstream string, f *proxyfile.File, tenants tenantResolver) proxy.Route {
	return proxy.Route{
		Method: method, Pattern: pattern,
		Idempotency: b.idempotency(f, s, upstream, tenants), KeyPointer: s.Key.Pointer, DontStoreBody: s.Responses.NoBody,
		SetHeader: header(s.Headers.Request.Add), DropHeader: s.Headers.Request.Drop,
		SetResponseHeader: header(s.Headers.Response.Add), DropResponseHeader: s.Headers.Response.Drop,
		KeepOverrides: s.KeepOverrides, NoUpgrade: !s.Upgrades, MaxBody: int64(s.Limits.Other),
	}
}

func header(pairs map[string]string) http.Header {
	h := make(http.Header)
	for name, value := range pairs {
		h.Set(name, value)
	}
	return h
}

func (b *routeBuilder) idempotency(f *proxyfile.File, s *proxyfile.Settings, upstream string, tenants tenantResolver) httponce.Config {
	keys := httponce.KeyFormat{MaxLength: s.Key.MaxLength, Chars: s.Key.Chars}
	if s.Key.Strict {
		keys.Syntax = httponce.StringOnly
	}
	cfg := httponce.Config{
		FingerprintSecret: b.secret, FingerprintHeaders: s.Fingerprint.Headers,

		Tenant: b.metrics.countKeyed(tenants.of), Reject: tenants.reject, Methods: s.Methods,
		Header: s.Key.Header, KeyFormat: keys, Required: s.Key.Required,
		MaxBody: int64(s.Limits.Body), MaxResponse: int(s.Limits.Response), MaxInFlight: s.Limits.InFlight, MaxNewKeys: s.Limits.NewKeys,
		MaxMemory: int64(f.Server.Memory), MaxTenantMemory: int64(s.Limits.TenantMemory),
		MaxStored: int64(f.Store.Limit), MaxTenantStored: int64(s.Limits.TenantStored),
		MaxWait: s.PreferWait, KeepErrors: s.Responses.KeepErrors, DocsURL: s.Errors.DocsURL,
		StoreStatus: member(s.Responses.Statuses), UnknownStatus: member(s.Responses.UnknownStatuses), ReplayHeader: replayed(&s.Responses),
		Problem: b.metrics.rejections(upstream, rejectionWriter(f, s)),
	}
	if len(s.Summary) > 0 {
		cfg.Summary = slices.DeleteFunc(slices.Clone(s.Summary), func(of string) bool { return of == proxyfile.SummaryPath })
	}
	if s.Operation != "" {
		cfg.Operation = func(*http.Request) string { return s.Operation }
	}
	switch s.Fingerprint.Mode {
	case proxyfile.FingerprintJSON:
		cfg.Fingerprint = httponce.CanonicalJSON(s.Fingerprint.Fields...)
	case proxyfile.FingerprintNone:
		cfg.SkipFingerprint = true
	}
	return cfg
}

// longestPath is how much of a path an operation shows.
const longestPath = 400

// methodAndPath is the operation of a request that matches no route.
func methodAndPath(r *http.Request) string {
	path := (&url.URL{Path: path.Clean(r.URL.Path)}).EscapedPath() // other spellings are the same, and the fingerprint tells them apart
	if len(path) > longestPath {
		sum := sha256.Sum256([]byte(path))
		path = path[:longestPath] + "~" + hex.EncodeToString(sum[:])
	}
	return r.Method + " " + path
}

// member returns a function that reports which statuses are in the set; nil: the default.
func member(set statuses.Set) func(int) bool {
	if len(set) == 0 {
		return nil
	}
	return set.Has
}

// ofBody are the headers without which a body can't be interpreted.
var ofBody = []string{"Content-Type", "Content-Encoding"}

// replayed returns a function that reports which headers are stored; nil: the default.
func replayed(a *proxyfile.Responses) func(string, bool) bool {
	named := func(list []string, name string) bool {
		return slices.ContainsFunc(list, func(n string) bool { return strings.EqualFold(n, name) })
	}
	switch {
	case len(a.KeepHeaders) > 0:
		return func(name string, _ bool) bool { return named(a.KeepHeaders, name) || named(ofBody, name) }
	case len(a.DropHeaders) > 0 || len(a.AllowHeaders) > 0:
		return func(name string, byDefault bool) bool {
			return (byDefault || named(a.AllowHeaders, name)) && !named(a.DropHeaders, name)
		}
	}
	return nil
}

// rejectionWriter writes rejections as the settings say, and in a 401 which credentials are
// accepted.
func rejectionWriter(f *proxyfile.File, s *proxyfile.Settings) rejection.Writer {
	write := s.Errors.Writer()
	if f.Tenant.JWT.Claim == "" {
		return write
	}
	return func(w http.ResponseWriter, r *http.Request, p httponce.Problem) {
		if p.Status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", bearer.Challenge(r))
		}
		write(w, r, p)
	}
}
