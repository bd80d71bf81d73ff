// Package publicid makes and reads the identifiers by which an API's resources
// are known outside, such as ord_01JD71T001081G81860W40J2QZ: a prefix that names
// the resource's type, and a ULID.
//
// The rules of a public id:
//
//   - Length: the prefix and 26 characters, no more and no fewer.
//   - Prefix: 1 to 16 characters from a-z and 0-9 that begin with a letter, and
//     a separator, _ or -. It is compared byte by byte, so that an id of one type
//     is never accepted where another type's is expected.
//   - Alphabet: after the prefix the ULID in Crockford's base32, 0-9 and A-Z
//     without I, L, O and U. The first of the 26 characters is 0 to 7, because a
//     ULID has 128 bits and 26 characters would hold 130.
//   - Case: the prefix is lower case, the rest upper case. Other spellings are
//     rejected, although Crockford's decoding would accept them: one resource has
//     one public id, in URLs, logs, caches and fingerprints.
//   - Check: there is no check character. Of the 128 bits 48 are the time, in
//     milliseconds, and 80 are random: a mistyped id is malformed or names
//     nothing, and nobody can guess the id of another's resource. An id is no
//     credential all the same.
//   - Order: public ids of one type sort like their 16 bytes, and so by the time
//     at which they were made. Within one millisecond the order is random.
//
// A database keeps the 16 bytes; the prefix stands in the program only.
package publicid

import (
	"crypto/rand"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

// An ID is the 16 bytes of a ULID.
type ID [16]byte

// New returns an ID of the current time.
func New() ID { return ID(ulid.MustNew(ulid.Now(), rand.Reader)) }

// Time returns when the ID was made, in UTC and cut to the millisecond.
func (i ID) Time() time.Time { return ulid.Time(ulid.ULID(i).Time()).UTC() }

// A Type is a kind of resource. NewType makes one.
type Type struct{ prefix string }

var prefixForm = regexp.MustCompile(`^[a-z][a-z0-9]{0,15}[_-]$`)

// NewType returns the Type of the ids with a prefix, such as "ord_". It panics if
// the prefix is not as the package says.
func NewType(prefix string) Type {
	if !prefixForm.MatchString(prefix) {
		panic(fmt.Sprintf(`publicid: the prefix is %q: write 1 to 16 characters from a-z 0-9, the first a letter, and _ or - at the end, such as "ord_"`, prefix))
	}
	return Type{prefix}
}

// Format returns the public id of a resource of the type.
func (t Type) Format(id ID) string { return t.prefix + ulid.ULID(id).String() }

// Parse reads a public id of the type. It accepts exactly what Format returns. The
// error describes the mistake, in words that may be shown to the sender of the text.
func (t Type) Parse(text string) (ID, error) {
	code, mine := strings.CutPrefix(text, t.prefix)
	if !mine {
		return ID{}, t.notMine(text)
	}
	if len(code) != ulid.EncodedSize {
		return ID{}, fmt.Errorf("must have %d characters after %s", ulid.EncodedSize, t.prefix)
	}
	u, err := ulid.ParseStrict(code)
	if err != nil || u.String() != code {
		return ID{}, fmt.Errorf("must have only 0-9 and A-Z but I, L, O and U after %s, the first of them 0-7", t.prefix)
	}
	return ID(u), nil
}

// notMine is the error of a text that does not start with the prefix.
func (t Type) notMine(text string) error {
	separator := t.prefix[len(t.prefix)-1:]
	if at := strings.Index(text, separator); at > 0 {
		return fmt.Errorf("names something of another type: must start with %s", t.prefix)
	}
	return fmt.Errorf("must start with %s", t.prefix)
}
