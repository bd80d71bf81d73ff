// Package caller identifies the caller of a service: by a bearer token, or by the name
// that a caller without a token sends.
package caller

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/onlyonce-go/onlyonce/internal/tokenfile"
)

// Tokens holds the owners of bearer tokens. It keeps only SHA-256 hashes of the tokens.
type Tokens struct {
	list    []token
	revoked []string // owners whose names stay reserved
}

type token struct {
	owner string
	hash  [sha256.Size]byte
}

// revoked stands in place of the hash of a token that is no longer valid. The name of its
// owner stays reserved.
const revoked = "revoked"

// ParseTokens parses one token per line: its owner, white space, and the SHA-256 of
// the token in hexadecimal, or the word revoked. An owner may have several tokens. Empty
// lines and lines that begin with # are ignored. The hash of an empty token is an error.
func ParseTokens(r io.Reader) (Tokens, error) {
	var t Tokens
	err := tokenfile.Parse(r, func(fields []string) error {
		next, err := parseToken(fields)
		switch {
		case err != nil:
			return err
		case fields[1] == revoked:
			t.revoked = append(t.revoked, next.owner)
			return nil
		case slices.ContainsFunc(t.list, func(before token) bool { return before.hash == next.hash }):
			return errors.New("this token occurs twice: every owner needs a different one")
		}
		t.list = append(t.list, next)
		return nil
	})
	if err != nil {
		return Tokens{}, err
	}
	return t, nil
}

func parseToken(fields []string) (t token, err error) {
	if len(fields) != 2 {
		return t, fmt.Errorf("%d fields: write two, an owner and the SHA-256 of a token", len(fields))
	}
	t.owner = fields[0]
	if !tokenfile.IsName(t.owner) {
		return t, fmt.Errorf("the owner must have %s", tokenfile.NameForm)
	}
	if fields[1] == revoked {
		return t, nil
	}
	if t.hash, err = tokenfile.ParseHash(fields[1]); err != nil {
		return t, err
	}
	if tokenfile.IsOfNothing(t.hash) {
		return t, errors.New("this is the hash of an empty token: hash the token itself, which an unset variable does not hold")
	}
	return t, nil
}

// Owner returns the owner of a token. An empty token has none. Its duration depends
// neither on the token nor on its place in the list.
func (t Tokens) Owner(presented string) (owner string, ok bool) {
	if presented == "" {
		return "", false
	}
	hash := sha256.Sum256([]byte(presented))
	found := -1
	for i := range t.list {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(hash[:], t.list[i].hash[:]), i, found)
	}
	if found < 0 {
		return "", false
	}
	return t.list[found].owner, true
}

// has reports whether the owner has a token, or had one that was revoked.
func (t Tokens) has(owner string) bool {
	return slices.Contains(t.revoked, owner) || slices.ContainsFunc(t.list, func(t token) bool { return t.owner == owner })
}
