package sandboxes

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/onlyonce-go/onlyonce/services/internal/caller"
)

// Tokens say whose bearer token is whose. Only SHA-256 hashes are kept.
type Tokens = caller.Tokens

// ParseTokens reads one token a line: its owner, white space, and the SHA-256 of
// the token in hexadecimal. An owner may have several. Empty lines and those
// that start with # do not count.
func ParseTokens(r io.Reader) (Tokens, error) {
	t, err := caller.ParseTokens(r)
	if err != nil {
		return Tokens{}, fmt.Errorf("sandboxes: parse tokens: %w", err)
	}
	return t, nil
}

// owner returns who calls.
func (a *API) owner(h http.Header) (string, error) {
	policy := caller.Policy{Tokens: a.cfg.Tokens, AllowAnonymous: a.cfg.AllowAnonymous, Header: "X-Owner"}
	name, err := policy.Name(h)
	if errors.Is(err, caller.ErrUnauthorized) {
		return "", errUnauthorized()
	}
	return name, err
}
