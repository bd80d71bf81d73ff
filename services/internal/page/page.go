// Package page reads which part of a list a client asks for, and cuts the list.
package page

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/onlyonce-go/onlyonce/services/internal/jsonbody"
)

// How many elements a page has.
const (
	defaultLimit = 50
	maxLimit     = 200
)

// A Query is what a client asks for in the parameters of a URL.
type Query struct {
	Limit  int    // how many elements at most: 1 to 200, default 50
	Cursor string // next_cursor of the page before; empty: the first page

	// All are the parameters, those that only one API has included.
	All url.Values
}

// Parse reads the query of a request's URL. The error is a *jsonbody.Fault.
func Parse(r *http.Request) (q Query, err error) {
	if q.All, err = url.ParseQuery(r.URL.RawQuery); err != nil {
		return q, &jsonbody.Fault{Field: "query", Problem: "must be well-formed"}
	}
	q.Limit, q.Cursor = defaultLimit, q.All.Get("cursor")
	if text := q.All.Get("limit"); text != "" {
		if q.Limit, err = strconv.Atoi(text); err != nil || q.Limit < 1 || q.Limit > maxLimit {
			return q, &jsonbody.Fault{Field: "limit", Problem: fmt.Sprintf("must be an integer from 1 to %d", maxLimit)}
		}
	}
	return q, nil
}

// ErrCursor is the fault of a cursor that no page had.
var ErrCursor = &jsonbody.Fault{Field: "cursor", Problem: "must be the next_cursor of one of your pages"}

// A Page is the body of the response.
type Page[T any] struct {
	Items      []T     `json:"items"`
	NextCursor *string `json:"next_cursor"` // nil: there are no more
}

// Cut returns the page that the query asks for out of what was found, which has one
// element more than the limit if there is another page.
func Cut[T any](found []T, q Query, cursor func(last T) string) Page[T] {
	p := Page[T]{Items: found}
	if len(found) > q.Limit {
		p.Items = found[:q.Limit]
		next := cursor(p.Items[q.Limit-1])
		p.NextCursor = &next
	}
	if p.Items == nil {
		p.Items = []T{}
	}
	return p
}
