package orders

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/onlyonce-go/onlyonce/httponce"
)

// get answers one order.
func (a *API) get(_ http.ResponseWriter, r *http.Request, tenant string) (answer, error) {
	o, err := orderIDs.Parse(r.PathValue("id"))
	if err != nil {
		return answer{}, invalid("id", err.Error())
	}
	found, err := a.find(r.Context(), tenant, o)
	if err != nil {
		return answer{}, unread(err)
	}
	return ok(found)
}

// list answers a page of the tenant's orders, the newest first.
func (a *API) list(_ http.ResponseWriter, r *http.Request, tenant string) (answer, error) {
	p, err := parsePage(tenant, r.URL.RawQuery)
	if err != nil {
		return answer{}, err
	}
	var body struct {
		Items      []order `json:"items"`
		NextCursor *string `json:"next_cursor"`
	}
	if body.Items, err = a.newest(r.Context(), tenant, p); err != nil {
		return answer{}, unread(err)
	}
	if len(body.Items) > p.limit {
		body.Items = body.Items[:p.limit]
		next := cursor(tenant, body.Items[p.limit-1].id)
		body.NextCursor = &next
	}
	return ok(body)
}

// unread says that the database could not answer, which it may do the next time.
func unread(err error) error {
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
