package items

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
)

// How many items a page has.
const (
	defaultLimit = 50
	maxLimit     = 200
)

// get answers one item.
func (a *API) get(w http.ResponseWriter, r *http.Request) {
	id, ok := parseID(r.PathValue("id"))
	if !ok {
		write(w, http.StatusNotFound, notFound)
		return
	}
	i, err := scan(a.db.QueryRowContext(r.Context(), `SELECT `+columns+` FROM items_items WHERE id = ?`, id))
	switch {
	case errors.Is(err, sql.ErrNoRows):
		write(w, http.StatusNotFound, notFound)
	case err != nil:
		a.fail(w, r, fmt.Errorf("read an item: %w", err))
	default:
		write(w, http.StatusOK, i)
	}
}

// parseID reads a positive integer as an item has it.
func parseID(text string) (id int64, ok bool) {
	id, err := strconv.ParseInt(text, 10, 64)
	return id, err == nil && id > 0 && strconv.FormatInt(id, 10) == text
}

// list answers a page of items, in the order in which they were made.
func (a *API) list(w http.ResponseWriter, r *http.Request) {
	after, limit, wrong := parsePage(r.URL.RawQuery)
	if wrong != "" {
		write(w, http.StatusBadRequest, invalid(wrong))
		return
	}
	var page struct {
		Items      []item  `json:"items"`
		NextCursor *string `json:"next_cursor"`
	}
	var err error
	if page.Items, err = a.after(r.Context(), after, limit+1); err != nil {
		a.fail(w, r, fmt.Errorf("list items: %w", err))
		return
	}
	if len(page.Items) > limit {
		page.Items = page.Items[:limit]
		next := strconv.FormatInt(page.Items[limit-1].ID, 10)
		page.NextCursor = &next
	}
	write(w, http.StatusOK, page)
}

func parsePage(query string) (after int64, limit int, wrong string) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return 0, 0, "query: must be well-formed"
	}
	limit = defaultLimit
	if text := values.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > maxLimit {
			return 0, 0, fmt.Sprintf("limit: must be an integer from 1 to %d", maxLimit)
		}
	}
	if text := values.Get("cursor"); text != "" {
		var ok bool
		if after, ok = parseID(text); !ok {
			return 0, 0, "cursor: must be the next_cursor of a page"
		}
	}
	return after, limit, ""
}

// after returns the items after the one with the id.
func (a *API) after(ctx context.Context, id int64, limit int) (list []item, err error) {
	rows, err := a.db.QueryContext(ctx, `SELECT `+columns+` FROM items_items WHERE id > ? ORDER BY id LIMIT ?`, id, limit)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	list = []item{}
	for rows.Next() {
		i, err := scan(rows)
		if err != nil {
			return nil, err
		}
		list = append(list, i)
	}
	return list, rows.Err()
}
