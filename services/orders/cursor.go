package orders

import (
	"bytes"
	"encoding/base64"
	"errors"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/services/publicid"
)

// cursorSeal is the number of bytes of a cursor that identify its tenant.
const cursorSeal = 8

// cursor returns the cursor of the page after an order in its tenant's list.
func cursor(tenant string, after publicid.ID) string {
	return base64.RawURLEncoding.EncodeToString(append(after[:], seal(tenant, after)...))
}

func seal(tenant string, after publicid.ID) []byte {
	return onlyonce.Fingerprint([]byte("orders cursor"), []byte(tenant), after[:])[:cursorSeal]
}

var errCursor = errors.New("not a cursor of this tenant")

func parseCursor(tenant, text string) (after publicid.ID, err error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) != len(after)+cursorSeal {
		return after, errCursor
	}
	copy(after[:], raw)
	if !bytes.Equal(raw[len(after):], seal(tenant, after)) {
		return after, errCursor
	}
	return after, nil
}
