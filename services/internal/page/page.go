// Package page parses which page of a list a client requests, and builds the page.
package page

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/onlyonce-go/onlyonce/services/internal/jsonbody"
)

// The number of elements of a page.
const (
	defaultLimit = 50
	maxLimit     = 200
)

// A Query is the page that a client requests by the parameters of a URL.
type Query struct {
	Limit  int    // largest number of elements: 1 to 200, default 50
	Cursor string // next_cursor of the previous page; empty: the first page

	// All has all parameters, including those of one API only.
	All url.Values
}

// Parse parses the query of a request's URL. The error is a *jsonbody.FieldError.
func Parse(r *http.Request) (q Query, err error) {
	if q.All, err = url.ParseQuery(r.URL.RawQuery); err != nil {
		return q, &jsonbody.FieldError{Field: "query", Detail: "must be well-formed"}
	}
	q.Limit, q.Cursor = defaultLimit, q.All.Get("cursor")
	if text := q.All.Get("limit"); text != "" {
		if q.Limit, err = strconv.Atoi(text); err != nil || q.Limit < 1 || q.Limit > maxLimit {
			return q, &jsonbody.FieldError{Field: "limit", Detail: fmt.Sprintf("must be an integer from 1 to %d", maxLimit)}
		}
	}
	return q, nil
}

// ErrCursor is the error of a cursor that is not from a page.
var ErrCursor = &jsonbody.FieldError{Field: "cursor", Detail: "must be the next_cursor of one of your pages"}

// maxBytes bounds the total length of the elements of a page, in bytes. A page is in
// memory until its client has read it, and an element may be many times longer than
// most are.
const maxBytes = 512 << 10

// A Page is the body of the response.
type Page struct {
	Items      []json.RawMessage `json:"items"`
	NextCursor *string           `json:"next_cursor"` // nil: this is the last page
}

// A Builder builds the page that a query requests. A page has fewer elements than the
// limit if more would exceed 512 KiB, but it has at least one.
type Builder[T any] struct {
	Query  Query
	Cursor func(last T) string // returns the cursor of the page after one that ends with last

	items []json.RawMessage
	size  int
	last  T
	more  bool
}

// Rows returns how many elements to read from the database: one more than a page has,
// to know whether there is another page.
func (b *Builder[T]) Rows() int { return b.Query.Limit + 1 }

// Add adds the next element of the list. It reports whether the page has room for more;
// if not, the rest of the list need not be read.
func (b *Builder[T]) Add(element T) (takesMore bool, err error) {
	doc, err := json.Marshal(element)
	if err != nil {
		return false, fmt.Errorf("encode an element of a page: %w", err)
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
