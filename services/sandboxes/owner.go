package sandboxes

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/onlyonce-go/onlyonce/services/internal/caller"
)

// Tokens holds the owners of bearer tokens. It keeps only SHA-256 hashes of the tokens.
type Tokens = caller.Tokens

// ParseTokens parses one token per line: its owner, white space, and the SHA-256 of
// the token in hexadecimal, or the word revoked. An owner may have several tokens. The name
// of an owner whose tokens were revoked stays reserved: no caller without a token can take
// it. Empty lines and lines that begin with # are ignored. The hash of an empty token is an
// error.
func ParseTokens(r io.Reader) (Tokens, error) {
	t, err := caller.ParseTokens(r)
	if err != nil {
		return Tokens{}, fmt.Errorf("sandboxes: parse tokens: %w", err)
	}
	return t, nil
}

// owner returns the owner that sent a request with the header h.
func (a *API) owner(h http.Header) (string, error) {
	policy := caller.Policy{Tokens: a.cfg.Tokens, AllowAnonymous: a.cfg.AllowAnonymous, Header: "X-Owner"}
	name, err := policy.Name(h)
	if errors.Is(err, caller.ErrUnauthorized) {
		return "", errUnauthorized()
	}
	return name, err
}
