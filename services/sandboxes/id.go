package sandboxes

import (
	"crypto/rand"
	"strings"

	"github.com/oklog/ulid/v2"
)

// What an identifier starts with says what it names.
const (
	sandboxPrefix   = "sandbox-"
	workspacePrefix = "ws-"
	sessionPrefix   = "session-"
	requestPrefix   = "req-"
)

func newID(prefix string) string {
	return prefix + ulid.MustNew(ulid.Now(), rand.Reader).String()
}

// isID reports whether s is the prefix and a ULID as newID writes it, and so
// safe to be the name of a file.
func isID(prefix, s string) bool {
	text, ok := strings.CutPrefix(s, prefix)
	id, err := ulid.ParseStrict(text)
	return ok && err == nil && id.String() == text
}
