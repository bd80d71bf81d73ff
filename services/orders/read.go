package orders

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/services/internal/page"
	"github.com/onlyonce-go/onlyonce/services/publicid"
)

// get answers one order.
func (a *API) get(_ http.ResponseWriter, r *http.Request, tenant string) (answer, error) {
	o, err := orderIDs.Parse(r.PathValue("id"))
	if err != nil {
		return answer{}, invalid("id", err.Error())
	}
	found, err := a.find(r.Context(), tenant, o)
	if err != nil {
		return answer{}, readFailed(err)
	}
	return ok(found)
}

// list answers a page of the tenant's orders, the newest first.
func (a *API) list(_ http.ResponseWriter, r *http.Request, tenant string) (answer, error) {
	q, err := page.Parse(r)
	if err != nil {
		return answer{}, err
	}
	var before *publicid.ID // nil: from the newest
	if q.Cursor != "" {
		id, err := parseCursor(tenant, q.Cursor)
		if err != nil {
			return answer{}, page.ErrCursor
		}
		before = &id
	}
	b := page.Builder[order]{Query: q, Cursor: func(last order) string { return cursor(tenant, last.id) }}
	if err := a.newest(r.Context(), tenant, before, &b); err != nil {
		return answer{}, readFailed(err)
	}
	return ok(b.Page())
}

// readFailed says that the database did not answer, which it may do the next time.
func readFailed(err error) error {
	var told httponce.Problem
	if errors.As(err, &told) {
		return err
	}
	return &readError{err}
}

// A readError is what the database said of a read.
type readError struct{ err error }

func (e *readError) Error() string { return e.err.Error() }
func (e *readError) Unwrap() error { return e.err }

func ok(v any) (answer, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return answer{}, fmt.Errorf("write the answer: %w", err)
	}
	return answer{status: http.StatusOK, body: body}, nil
}
