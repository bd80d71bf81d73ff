package console

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"io"

	"github.com/onlyonce-go/onlyonce/internal/tokenfile"
)

// A Role determines the permissions of a person.
type Role string

// These are the roles.
const (
	Reader Role = "reader" // sees
	Writer Role = "writer" // sees and decides
)

// A Token lets a person log in. Only its hash is known, so a token must be random and
// long, such as the output of openssl rand -hex 32: a hash of a password can be guessed.
type Token struct {
	Name string // of the person, for the audit trail: 1 to 128 characters from a-z A-Z 0-9 . _ @ -
	Role Role
	Hash [sha256.Size]byte // SHA-256
}

// ParseTokens parses one token per line: the name of a person, a role, and the SHA-256
// of the token in hexadecimal, with white space between them. A person may have several
// tokens. Empty lines and lines that begin with # are ignored.
func ParseTokens(r io.Reader) ([]Token, error) {
	var list []Token
	err := tokenfile.Parse(r, func(fields []string) error {
		t, err := parseToken(fields)
		list = append(list, t)
		return err
	})
	if err != nil {
		return nil, err
	}
	return list, checkTokens(list)
}

func parseToken(fields []string) (t Token, err error) {
	if len(fields) != 3 {
		return t, fmt.Errorf("%d fields: write three, a name, a role (reader or writer) and the SHA-256 of a token", len(fields))
	}
	t.Name, t.Role = fields[0], Role(fields[1])
	if t.Hash, err = tokenfile.ParseHash(fields[2]); err != nil {
		return t, err
	}
	return t, t.check()
}

func (t *Token) check() error {
	switch {
	case !tokenfile.IsName(t.Name):
		return fmt.Errorf("the name of a token must have %s", tokenfile.NameForm)
	case t.Role != Reader && t.Role != Writer:
		return fmt.Errorf("the role of the token of %s must be reader or writer", t.Name)
	case tokenfile.IsOfNothing(t.Hash) || t.Hash == [sha256.Size]byte{}:
		return fmt.Errorf("the token of %s is empty: anyone could log in", t.Name)
	}
	return nil
}

// checkTokens rejects tokens that can't be used, and a token that occurs twice.
func checkTokens(list []Token) error {
	seen := make(map[[sha256.Size]byte]bool)
	for _, t := range list {
		if err := t.check(); err != nil {
			return err
		}
		if seen[t.Hash] {
			return fmt.Errorf("the token of %s occurs twice: every person needs a different one", t.Name)
		}
		seen[t.Hash] = true
	}
	if len(list) == 0 {
		return fmt.Errorf("there is no token, so nobody could log in: write at least one")
	}
	return nil
}

// find returns the token with a secret. It takes the same time whichever it is.
func find(list []Token, secret string) (found Token, ok bool) {
	hash := sha256.Sum256([]byte(secret))
	for _, t := range list {
		if subtle.ConstantTimeCompare(t.Hash[:], hash[:]) == 1 {
			found, ok = t, true
		}
	}
	return found, ok
}
