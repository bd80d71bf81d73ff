package items

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/onlyonce-go/onlyonce/services/internal/page"
	"github.com/onlyonce-go/onlyonce/services/internal/serving"
)

// get serves one item.
func (a *API) get(w http.ResponseWriter, r *http.Request) {
	id, ok := parseID(r.PathValue("id"))
	if !ok {
		a.reject(w, r, serving.ErrNotFound)
		return
	}
	i, err := scan(a.db.QueryRowContext(r.Context(), `SELECT `+columns+` FROM items_items WHERE id = ?`, id))
	switch {
	case errors.Is(err, sql.ErrNoRows):
		a.reject(w, r, serving.ErrNotFound)
	case err != nil:
		a.reject(w, r, fmt.Errorf("read an item: %w", err))
	default:
		write(w, http.StatusOK, i)
	}
}

// parseID parses the ID of an item, a positive integer in its shortest form.
func parseID(text string) (id int64, ok bool) {
	id, err := strconv.ParseInt(text, 10, 64)
	return id, err == nil && id > 0 && strconv.FormatInt(id, 10) == text
}

// list serves a page of items, oldest first.
func (a *API) list(w http.ResponseWriter, r *http.Request) {
	q, err := page.Parse(r)
	if err != nil {
		a.reject(w, r, err)
		return
	}
	after := int64(0)
	if q.Cursor != "" {
		var ok bool
		if after, ok = parseID(q.Cursor); !ok {
			a.reject(w, r, page.ErrCursor)
			return
		}
	}
	b := page.Builder[item]{Query: q, Cursor: func(last item) string { return strconv.FormatInt(last.ID, 10) }}
	if err := a.read(r.Context(), after, &b); err != nil {
		a.reject(w, r, fmt.Errorf("list items: %w", err))
		return
	}
	write(w, http.StatusOK, b.Page())
}

// read adds the items after the one with the id to a page, until it is full.
func (a *API) read(ctx context.Context, id int64, b *page.Builder[item]) (err error) {
	rows, err := a.db.QueryContext(ctx, `SELECT `+columns+` FROM items_items WHERE id > ? ORDER BY id LIMIT ?`, id, b.Rows())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for takesMore := true; takesMore && rows.Next(); {
		i, err := scan(rows)
		if err != nil {
			return err
		}
		if takesMore, err = b.Add(i); err != nil {
			return err
		}
	}
	return rows.Err()
}
