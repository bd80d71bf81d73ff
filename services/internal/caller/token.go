// Package caller identifies the caller of a service: by a bearer token, or by the name
// that a caller without a token sends.
package caller

import (
	"bufio"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// Tokens holds the owners of bearer tokens. It keeps only SHA-256 hashes of the tokens.
type Tokens struct{ list []token }

type token struct {
	owner string
	hash  [sha256.Size]byte
}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9._@-]{1,128}$`)

// ParseTokens parses one token per line: its owner, white space, and the SHA-256 of
// the token in hexadecimal. An owner may have several tokens. Empty lines and lines
// that begin with # are ignored. The hash of an empty token is an error.
func ParseTokens(r io.Reader) (Tokens, error) {
	var t Tokens
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		next, err := parseToken(line)
		if err != nil {
			return Tokens{}, fmt.Errorf("line %d: %w", n, err)
		}
		for _, before := range t.list {
			if before.hash == next.hash {
				return Tokens{}, fmt.Errorf("line %d: this token occurs twice: every owner needs a different one", n)
			}
		}
		t.list = append(t.list, next)
	}
	if err := lines.Err(); err != nil {
		return Tokens{}, err
	}
	return t, nil
}

func parseToken(line string) (t token, err error) {
	fields := strings.Fields(line)
	if len(fields) != 2 {
		return t, fmt.Errorf("%d fields: write two, an owner and the SHA-256 of a token", len(fields))
	}
	if !nameForm.MatchString(fields[0]) {
		return t, fmt.Errorf("the owner must have 1 to 128 characters from a-z A-Z 0-9 . _ @ -")
	}
	hash, err := hex.DecodeString(fields[1])
	if err != nil || len(hash) != len(t.hash) {
		return t, fmt.Errorf("the hash must have 64 hexadecimal digits, as sha256sum prints them")
	}
	t.owner = fields[0]
	if copy(t.hash[:], hash); t.hash == sha256.Sum256(nil) {
		return t, fmt.Errorf("this is the hash of an empty token: hash the token itself, which an unset variable does not hold")
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

// has reports whether the owner has a token.
func (t Tokens) has(owner string) bool {
	for i := range t.list {
		if t.list[i].owner == owner {
			return true
		}
	}
	return false
}
