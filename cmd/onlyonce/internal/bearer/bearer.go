// Package bearer says whose request it is by a JSON Web Token that it verifies.
package bearer

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// A Config says which tokens are believed.
type Config struct {
	Claim    string // whose text is the tenant
	Issuer   string // what iss must be; "": anything
	Audience string // what aud must hold; "": anything
	Log      *slog.Logger
}

// algorithms are those whose keys can't be made of what verifies them: "none"
// and shared secrets are not among them.
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
	logged atomic.Int64 // when a rejection was, in seconds
}

// New returns a Verifier of what keys have signed.
func New(keys *Keys, cfg Config) *Verifier { return &Verifier{keys: keys, cfg: cfg} }

// Tenant is an httponce.Config.Tenant. A request without a token that is right
// has no tenant.
func (v *Verifier) Tenant(r *http.Request) string {
	tenant, err := v.tenant(r)
	if err != nil {
		v.log(err)
	}
	return tenant
}

// Challenge is the WWW-Authenticate of a rejection: RFC 6750, section 3.
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
		return "", fmt.Errorf("%d Authorization headers: one is wanted", len(given))
	}
	scheme, token, _ := strings.Cut(given[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", errors.New("the Authorization header holds no bearer token")
	}
	return v.Verify(strings.Trim(token, " "))
}

// rejectionEvery is how often a rejected token is logged at most.
const rejectionEvery = 10

// log tells operators why a token was rejected; those who only try are many.
func (v *Verifier) log(err error) {
	now, last := time.Now().Unix(), v.logged.Load()
	if now-last >= rejectionEvery && v.logged.CompareAndSwap(last, now) {
		v.cfg.Log.Warn("a token was rejected; others of the next ten seconds are not logged", "error", err)
	}
}

// Verify returns the tenant that a token names: its signature, its time, its
// issuer and its audience are right.
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
		return "", errors.New("the token has no exp: it would be valid for ever")
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
		return "", fmt.Errorf("the claim %q of the token is missing, empty or no text", v.cfg.Claim)
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
