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
	"unicode"
	"unicode/utf8"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/bearer"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/proxyfile"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/server"
	"github.com/onlyonce-go/onlyonce/httponce"
)

// A tenantResolver finds the tenant of a request.
type tenantResolver struct {
	of   func(*http.Request) string
	keys *bearer.Keys // keys that verify tokens; nil: none
	stop func()       // ends the reloading of the keys

	reject func(*http.Request, string) *httponce.Problem // an httponce.Config.Reject; nil: no tenant is rejected
}

// newTenantResolver returns a resolver, and reloads its keys until stop is called.
func newTenantResolver(ctx context.Context, f *proxyfile.File, log *slog.Logger) (tenantResolver, error) {
	t := &f.Tenant
	switch {
	case t.Header != "":
		return tenantResolver{of: headerTenant(t.Header, trustedPeers(t.From, f.TLS.ClientCA != ""))}, nil
	case t.Authorization:
		limit := newTenantLimit(t.NewPerAddress, f.Forwarded.Trust, log)
		return tenantResolver{of: authorizationTenant, reject: limit.reject}, nil
	case t.Single:
		return tenantResolver{of: httponce.SingleTenant}, nil
	}
	source := bearer.File(t.JWT.JWKS)
	if proxyfile.IsURL(t.JWT.JWKS) {
		source = nil
		if t.JWT.CA == "" {
			source = bearer.URL(t.JWT.JWKS, nil)
		} else if roots, err := readRoots(t.JWT.CA); err != nil {
			return tenantResolver{}, f.Mistake("tenant.jwt.ca", err.Error())
		} else {
			source = bearer.URL(t.JWT.JWKS, roots)
		}
	}
	keys, err := bearer.Read(ctx, source, t.JWT.Refresh, log)
	if err != nil {
		return tenantResolver{}, f.Mistake("tenant.jwt.jwks", err.Error())
	}
	v := bearer.New(keys, bearer.Config{Claim: t.JWT.Claim, Issuer: t.JWT.Issuer, Audience: t.JWT.Audience, Log: log})
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	go keys.Run(work)
	return tenantResolver{of: func(r *http.Request) string { return validTenant(v.Tenant(r)) }, keys: keys, stop: stop}, nil
}

// trustedPeers returns a function that reports whether a client may set the tenant
// header: clients at the addresses or, if there are none, clients with a certificate if
// certificates are required, and otherwise clients on this machine.
func trustedPeers(from []netip.Prefix, certificates bool) func(*http.Request) bool {
	if len(from) == 0 {
		if certificates {
			return hasCertificate
		}
		from = server.Loopback
	}
	return func(r *http.Request) bool { return server.ComesFrom(r, from) }
}

// headerTenant reads the tenant from a header that a trusted peer has set. A header that
// occurs twice or has a comma names none, because a part of it may come from the client.
func headerTenant(header string, trusted func(*http.Request) bool) func(*http.Request) string {
	name := http.CanonicalHeaderKey(header)
	return func(r *http.Request) string {
		values := r.Header[name]
		if len(values) != 1 || strings.Contains(values[0], ",") || !trusted(r) {
			return ""
		}
		return validTenant(values[0])
	}
}

const longestTenant = 512 // bytes

// validTenant returns the tenant, or "" if it can't be stored and shown.
func validTenant(tenant string) string {
	if len(tenant) > longestTenant || !utf8.ValidString(tenant) || strings.ContainsFunc(tenant, unicode.IsControl) {
		return ""
	}
	return tenant
}

// authorizationTenant returns a digest of the Authorization header, so that credentials
// are not in the store.
func authorizationTenant(r *http.Request) string {
	values := r.Header["Authorization"]
	if len(values) != 1 || values[0] == "" {
		return ""
	}
	sum := sha256.Sum256([]byte("onlyonce proxy: Authorization\n" + values[0]))
	return "authorization:" + hex.EncodeToString(sum[:])
}

// describeTenants returns, for the log, how the tenant of a request is found.
func describeTenants(f *proxyfile.File) string {
	t := &f.Tenant
	switch {
	case t.Header != "" && len(t.From) > 0:
		return fmt.Sprintf("header %s, from %s", t.Header, t.From.String())
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
