// Package page reads which part of a list a client asks for, and makes the page.
package page

import (
	"encoding/json"
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

// maxBytes bounds the elements of a page. A page is in memory until its client has
// read it, and an element may be many times longer than most are.
const maxBytes = 512 << 10

// A Page is the body of the response.
type Page struct {
	Items      []json.RawMessage `json:"items"`
	NextCursor *string           `json:"next_cursor"` // nil: there are no more
}

// A Builder makes the page that a query asks for. A page has fewer elements than the
// limit if more of them are longer than 512 KiB together, but one at least.
type Builder[T any] struct {
	Query  Query
	Cursor func(last T) string // of the page after one that ends with last

	items []json.RawMessage
	size  int
	last  T
	more  bool
}

// Rows returns how many elements to ask the database for: one more than a page has, to
// know whether there is another page.
func (b *Builder[T]) Rows() int { return b.Query.Limit + 1 }

// Add adds the next element of the list. It reports whether the page takes more; if it
// does not, the rest of the list need not be read.
func (b *Builder[T]) Add(element T) (takesMore bool, err error) {
	doc, err := json.Marshal(element)
	if err != nil {
		return false, fmt.Errorf("write an element of a page: %w", err)
	}
	if n := len(b.items); n == b.Query.Limit || n > 0 && b.size+len(doc) > maxBytes {
		b.more = true
		return false, nil
	}
	b.items, b.size, b.last = append(b.items, doc), b.size+len(doc), element
	return true, nil
}

// Page returns the page of the elements that were added.
func (b *Builder[T]) Page() Page {
	p := Page{Items: b.items}
	if b.more {
		next := b.Cursor(b.last)
		p.NextCursor = &next
	}
	if p.Items == nil {
		p.Items = []json.RawMessage{}
	}
	return p
}
