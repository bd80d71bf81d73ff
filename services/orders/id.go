package orders

import (
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

// What a public id starts with says what it names.
const (
	orderPrefix    = "ord"
	shipmentPrefix = "shp"
)

// An id is how the database knows a thing: the 16 bytes of a ULID.
type id [16]byte

func newID() id { return id(ulid.MustNew(ulid.Now(), rand.Reader)) }

// made returns when the id was made, to the millisecond.
func (i id) made() time.Time { return ulid.Time(ulid.ULID(i).Time()).UTC() }

// public is how others know the thing: its prefix, _, and the ULID in Crockford's
// base32.
func (i id) public(prefix string) string { return prefix + "_" + ulid.ULID(i).String() }

// parseID reads a public id. Its error says what is wrong with it.
func parseID(prefix, text string) (id, error) {
	given, code, ok := strings.Cut(text, "_")
	switch {
	case !ok || given == "":
		return id{}, fmt.Errorf("must start with %s_", prefix)
	case given != prefix:
		return id{}, fmt.Errorf("names something of another type: must start with %s_", prefix)
	case len(code) != ulid.EncodedSize:
		return id{}, fmt.Errorf("must have %d characters after %s_", ulid.EncodedSize, prefix)
	}
	u, err := ulid.ParseStrict(code)
	if err != nil || u.String() != code {
		return id{}, fmt.Errorf("must have only 0-9 and A-Z but I, L, O and U after %s_, the first of them 0-7", prefix)
	}
	return id(u), nil
}
