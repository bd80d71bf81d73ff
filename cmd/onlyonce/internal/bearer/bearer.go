// Package bearer identifies the tenant of a request by a JSON Web Token.
package bearer

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/logging"
)

// A Config says which tokens are accepted.
type Config struct {
	Claim    string // whose text is the tenant
	Issuer   string // the required iss; "": any
	Audience string // a value that aud must contain; "": any
	Log      *slog.Logger
}

// algorithms are the accepted signature algorithms, all of them asymmetric: the keys
// that verify a token can't sign one.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512,
	jose.PS256, jose.PS384, jose.PS512,
	jose.ES256, jose.ES384, jose.ES512,
	jose.EdDSA,
}

const (
	leeway   = 30 * time.Second // that two clocks may differ
	maxToken = 16 << 10
)

// A Verifier verifies tokens.
type Verifier struct {
	keys   *Keys
	cfg    Config
	logged logging.Limit // of rejections
}

// New returns a Verifier of tokens that one of the keys has signed.
func New(keys *Keys, cfg Config) *Verifier { return &Verifier{keys: keys, cfg: cfg} }

// Tenant is an httponce.Config.Tenant. A request without a valid token has no tenant.
func (v *Verifier) Tenant(r *http.Request) string {
	tenant, err := v.tenant(r)
	if err != nil {
		v.log(err)
	}
	return tenant
}

// Challenge returns the WWW-Authenticate header of a rejection (RFC 6750, section 3).
func Challenge(r *http.Request) string {
	given := r.Header["Authorization"]
	if len(given) == 1 && strings.EqualFold(strings.SplitN(given[0], " ", 2)[0], "Bearer") {
		return `Bearer error="invalid_token"`
	}
	return "Bearer"
}

func (v *Verifier) tenant(r *http.Request) (string, error) {
	given := r.Header["Authorization"]
	if len(given) != 1 {
		return "", fmt.Errorf("there are %d Authorization headers instead of one", len(given))
	}
	scheme, token, _ := strings.Cut(given[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", errors.New("the Authorization header has no bearer token")
	}
	return v.Verify(strings.Trim(token, " "))
}

// log logs why a token was rejected.
func (v *Verifier) log(err error) {
	if v.logged.Allow() {
		v.cfg.Log.Warn("a token was rejected; others are not logged for ten seconds", "error", err)
	}
}

// Verify returns the tenant of a token, or an error if its signature, its time, its
// issuer or its audience is wrong.
func (v *Verifier) Verify(token string) (string, error) {
	if len(token) > maxToken {
		return "", fmt.Errorf("the token has more than %d bytes", maxToken)
	}
	parsed, err := jwt.ParseSigned(token, algorithms)
	if err != nil {
		return "", fmt.Errorf("the token is not valid: %w", err)
	}
	if len(parsed.Headers) != 1 {
		return "", errors.New("the token must have one signature")
	}
	var claims jwt.Claims
	var all map[string]any
	if err := v.claims(parsed, &claims, &all); err != nil {
		return "", err
	}
	if claims.Expiry == nil {
		return "", errors.New("the token has no exp: it would be valid forever")
	}
	expected := jwt.Expected{Issuer: v.cfg.Issuer, Time: time.Now()}
	if v.cfg.Audience != "" {
		expected.AnyAudience = jwt.Audience{v.cfg.Audience}
	}
	if err := claims.ValidateWithLeeway(expected, leeway); err != nil {
		return "", err
	}
	tenant, ok := all[v.cfg.Claim].(string)
	switch {
	case !ok || tenant == "":
		return "", fmt.Errorf("the claim %q of the token is missing, empty or not a string", v.cfg.Claim)
	case strings.ContainsRune(tenant, utf8.RuneError):
		// The decoder puts U+FFFD in place of every lone surrogate and every byte
		// that is not UTF-8, so that different claims become the same text.
		return "", fmt.Errorf("the claim %q of the token is not valid Unicode", v.cfg.Claim)
	}
	return tenant, nil
}

// claims decodes a token's claims with the key that its header names, or with
// any that fits if it names none.
func (v *Verifier) claims(t *jwt.JSONWebToken, into ...any) error {
	header := t.Headers[0]
	keys, err := v.keys.For(header.KeyID, header.Algorithm)
	if err != nil {
		return err
	}
	err = errors.New("there is no key for the token")
	for _, key := range keys {
		if err = t.Claims(key.Key, into...); err == nil {
			return nil
		}
	}
	return err
}
