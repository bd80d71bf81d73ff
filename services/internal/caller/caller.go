package caller

import (
	"errors"
	"net/http"
	"strings"

	"github.com/onlyonce-go/onlyonce/internal/tokenfile"
	"github.com/onlyonce-go/onlyonce/services/internal/jsonbody"
)

// Anonymous is the name of a caller that sends neither a token nor a name.
const Anonymous = "anonymous"

// ErrUnauthorized means that a caller has to send a valid token.
var ErrUnauthorized = errors.New("a valid bearer token is required")

// A Policy determines who may call.
type Policy struct {
	Tokens         Tokens
	AllowAnonymous bool   // a caller without a token may name itself, unless that owner has or had a token
	Header         string // the header with that name
}

// Name returns the name of the caller that sent the header h. If there is a token, it
// must be valid, even where anonymous callers are allowed. The error is
// ErrUnauthorized, or a *jsonbody.FieldError for an invalid name that the caller sent.
func (p Policy) Name(h http.Header) (string, error) {
	if given := h.Values("Authorization"); len(given) > 0 {
		return p.bearer(given)
	}
	if !p.AllowAnonymous {
		return "", ErrUnauthorized
	}
	names := h.Values(p.Header)
	if len(names) == 0 {
		names = []string{Anonymous}
	}
	switch {
	case len(names) > 1 || !tokenfile.IsName(names[0]):
		return "", &jsonbody.FieldError{Field: p.Header, Detail: "must be one name of " + tokenfile.NameForm}
	case p.Tokens.has(names[0]):
		return "", ErrUnauthorized
	}
	return names[0], nil
}

func (p Policy) bearer(headers []string) (string, error) {
	scheme, secret, _ := strings.Cut(headers[0], " ")
	owner, ok := p.Tokens.Owner(strings.TrimSpace(secret))
	if len(headers) > 1 || !strings.EqualFold(scheme, "Bearer") || !ok {
		return "", ErrUnauthorized
	}
	return owner, nil
}
