package orders

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/services/internal/page"
	"github.com/onlyonce-go/onlyonce/services/publicid"
)

// get serves one order.
func (a *API) get(_ http.ResponseWriter, r *http.Request, tenant string) (response, error) {
	o, err := orderIDs.Parse(r.PathValue("id"))
	if err != nil {
		return response{}, invalid("id", err.Error())
	}
	found, err := a.find(r.Context(), tenant, o)
	if err != nil {
		return response{}, readFailed(err)
	}
	return ok(found)
}

// list serves a page of the tenant's orders, newest first.
func (a *API) list(_ http.ResponseWriter, r *http.Request, tenant string) (response, error) {
	q, err := page.Parse(r)
	if err != nil {
		return response{}, err
	}
	var before *publicid.ID // nil: from the newest
	if q.Cursor != "" {
		id, err := parseCursor(tenant, q.Cursor)
		if err != nil {
			return response{}, page.ErrCursor
		}
		before = &id
	}
	b := page.Builder[order]{Query: q, Cursor: func(last order) string { return cursor(tenant, last.id) }}
	if err := a.newest(r.Context(), tenant, before, &b); err != nil {
		return response{}, readFailed(err)
	}
	return ok(b.Page())
}

// readFailed returns the error of a failed read: err itself if it is a Problem, and
// otherwise a readError, which the client may retry.
func readFailed(err error) error {
	var problem httponce.Problem
	if errors.As(err, &problem) {
		return err
	}
	return &readError{err}
}

// A readError is an error of the database during a read.
type readError struct{ err error }

func (e *readError) Error() string { return e.err.Error() }
func (e *readError) Unwrap() error { return e.err }

func ok(v any) (response, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return response{}, fmt.Errorf("encode the response: %w", err)
	}
	return response{status: http.StatusOK, body: body}, nil
}

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
