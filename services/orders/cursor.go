package orders

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strconv"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/services/publicid"
)

// How many orders a page has.
const (
	defaultLimit = 50
	maxLimit     = 200
)

// A page says which orders to list: the newest first, those after a cursor.
type page struct {
	limit  int
	before *publicid.ID // nil: from the newest
}

func parsePage(tenant, query string) (p page, err error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return p, invalid("query", "must be well-formed")
	}
	p.limit = defaultLimit
	if text := values.Get("limit"); text != "" {
		if p.limit, err = strconv.Atoi(text); err != nil || p.limit < 1 || p.limit > maxLimit {
			return p, invalid("limit", fmt.Sprintf("must be an integer from 1 to %d", maxLimit))
		}
	}
	if text := values.Get("cursor"); text != "" {
		before, err := parseCursor(tenant, text)
		if err != nil {
			return p, invalid("cursor", "must be the next_cursor of one of your pages")
		}
		p.before = &before
	}
	return p, nil
}

// cursorSeal is how many bytes of a cursor tell whose it is.
const cursorSeal = 8

// cursor names the place after an order in its tenant's list.
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
