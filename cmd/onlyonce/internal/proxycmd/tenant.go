package proxycmd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/bearer"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/proxyfile"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/refusal"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/server"
	"github.com/onlyonce-go/onlyonce/httponce"
)

// A tenancy says whose request it is.
type tenancy struct {
	of   func(*http.Request) string
	keys *bearer.Keys // that it believes; nil: none
	stop func()       // reading them

	refuse func(*http.Request, string) *httponce.Problem // a tenant; nil: none is refused
}

// newTenancy reads what is needed, and keeps reading it until stop is called.
func newTenancy(ctx context.Context, f *proxyfile.File, log *slog.Logger) (tenancy, error) {
	t := &f.Tenant
	switch {
	case t.Header != "":
		return tenancy{of: headerTenant(t.Header, believes(t.From, f.TLS.ClientCA != ""))}, nil
	case t.Authorization:
		limit := newTenantLimit(t.NewPerAddress, parsePrefixes(f.Forwarded.Trust), log)
		return tenancy{of: authorizationTenant, refuse: limit.refuse}, nil
	case t.Single:
		return tenancy{of: httponce.SingleTenant}, nil
	}
	source := bearer.File(t.JWT.JWKS)
	if proxyfile.IsURL(t.JWT.JWKS) {
		source = nil
		if t.JWT.CA == "" {
			source = bearer.URL(t.JWT.JWKS, nil)
		} else if roots, err := readRoots(t.JWT.CA); err != nil {
			return tenancy{}, f.Mistake(&t.JWT.CA, "tenant.jwt.ca", err.Error())
		} else {
			source = bearer.URL(t.JWT.JWKS, roots)
		}
	}
	keys, err := bearer.Read(ctx, source, t.JWT.Refresh, log)
	if err != nil {
		return tenancy{}, f.Mistake(&t.JWT.JWKS, "tenant.jwt.jwks", err.Error())
	}
	v := bearer.New(keys, bearer.Config{Claim: t.JWT.Claim, Issuer: t.JWT.Issuer, Audience: t.JWT.Audience, Log: log})
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	go keys.Run(work)
	return tenancy{of: func(r *http.Request) string { return named(v.Tenant(r)) }, keys: keys, stop: stop}, nil
}

// believes returns which clients may say whose request it is: those at the
// addresses, or without any those on this machine and those with a certificate.
func believes(from []string, certificates bool) func(*http.Request) bool {
	prefixes := parsePrefixes(from)
	if len(prefixes) == 0 {
		if certificates {
			return hasCertificate
		}
		prefixes = server.Loopback
	}
	return func(r *http.Request) bool { return server.ComesFrom(r, prefixes) }
}

// parsePrefixes reads what the file's check let pass.
func parsePrefixes(texts []string) (list []netip.Prefix) {
	for _, text := range texts {
		if p, err := proxyfile.ParsePrefix(text); err == nil {
			list = append(list, p)
		}
	}
	return list
}

// headerTenant believes a header of those who may set it. One that stands twice,
// or looks as if two had been joined, may be half a client's.
func headerTenant(header string, believed func(*http.Request) bool) func(*http.Request) string {
	name := http.CanonicalHeaderKey(header)
	return func(r *http.Request) string {
		values := r.Header[name]
		if len(values) != 1 || strings.Contains(values[0], ",") || !believed(r) {
			return ""
		}
		return named(values[0])
	}
}

const longestTenant = 512 // bytes

// named returns a tenant that can be stored and shown, or "".
func named(tenant string) string {
	if len(tenant) > longestTenant || !utf8.ValidString(tenant) || strings.ContainsFunc(tenant, unicode.IsControl) {
		return ""
	}
	return tenant
}

// authorizationTenant is a digest of the one Authorization header, which is not
// to be read in the store.
func authorizationTenant(r *http.Request) string {
	values := r.Header["Authorization"]
	if len(values) != 1 || values[0] == "" {
		return ""
	}
	sum := sha256.Sum256([]byte("onlyonce proxy: Authorization\n" + values[0]))
	return "authorization:" + hex.EncodeToString(sum[:])
}

// A front takes from requests the tenant header that only some clients may set.
type front struct {
	tenant  string // header; "": none
	tenants func(*http.Request) bool
	refuse  refusal.Writer

	log    *slog.Logger
	warned atomic.Int64 // when it last was, in seconds
}

func newFront(f *proxyfile.File, log *slog.Logger) *front {
	return &front{
		log:     log,
		tenant:  http.CanonicalHeaderKey(f.Tenant.Header),
		tenants: believes(f.Tenant.From, f.TLS.ClientCA != ""),
	}
}

func (f *front) strip(r *http.Request) {
	if f.tenant != "" && len(r.Header[f.tenant]) > 0 && !f.tenants(r) {
		delete(r.Header, f.tenant)
		f.warn(r)
	}
}

// warnEvery is how often a dropped header is logged at most, in seconds.
const warnEvery = 10

// warn tells an operator whose gateway is not known; anybody can send a header.
func (f *front) warn(r *http.Request) {
	now, last := time.Now().Unix(), f.warned.Load()
	if now-last >= warnEvery && f.warned.CompareAndSwap(last, now) {
		f.log.Warn("a tenant header was dropped: if it came from your gateway, name its address in tenant.from (--tenant-header-from); others of the next ten seconds are not logged", "from", r.RemoteAddr)
	}
}

// describeTenants says in the log how tenants are told apart.
func describeTenants(f *proxyfile.File) string {
	t := &f.Tenant
	switch {
	case t.Header != "" && len(t.From) > 0:
		return fmt.Sprintf("header %s, from %s", t.Header, strings.Join(t.From, ", "))
	case t.Header != "" && f.TLS.ClientCA != "":
		return fmt.Sprintf("header %s, from clients with a certificate", t.Header)
	case t.Header != "":
		return fmt.Sprintf("header %s, from this machine", t.Header)
	case t.Authorization:
		return "digest of Authorization"
	case t.Single:
		return "all are one"
	}
	return "claim " + t.JWT.Claim
}
