// Package tokenfile parses files whose lines have the names of people and the SHA-256 of their tokens.
package tokenfile

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// A Hash is the SHA-256 of a token.
type Hash = [sha256.Size]byte

// Parse calls line with the fields of each line, which white space separates. It leaves out empty lines and
// those that begin with #. An error of line is returned with the number of the line. It should not repeat
// the line: someone may have written a token into it instead of its hash.
func Parse(r io.Reader, line func(fields []string) error) error {
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || text[0] == '#' {
			continue
		}
		if err := line(strings.Fields(text)); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	return lines.Err()
}

// ParseHash parses a hash in hexadecimal.
func ParseHash(text string) (hash Hash, err error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(hash) {
		return hash, errors.New("the hash must have 64 hexadecimal digits, as sha256sum prints them")
	}
	copy(hash[:], b)
	return hash, nil
}

// IsOfNothing reports whether a hash is that of an empty token, as of an unset variable.
func IsOfNothing(hash Hash) bool { return hash == sha256.Sum256(nil) }

// NameForm describes the form of a name.
const NameForm = "1 to 128 characters from a-z A-Z 0-9 . _ @ -"

var nameForm = regexp.MustCompile(`^[A-Za-z0-9._@-]{1,128}$`)

// IsName reports whether a name has the NameForm.
func IsName(name string) bool { return nameForm.MatchString(name) }
