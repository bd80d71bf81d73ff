package sandboxes

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/onlyonce-go/onlyonce/services/internal/page"
)

const listSQL = `SELECT ` + columns + ` FROM sandboxes_sandboxes
WHERE owner = ?1 AND id > ?2 AND deleted_at IS NULL AND (?3 = '' OR ` + status + ` = ?3)
ORDER BY id LIMIT ?4`

// list serves a page of the owner's sandboxes, oldest first: all, or those with one
// status.
func (a *API) list(c *call) (response, error) {
	q, err := page.Parse(c.Request)
	if err != nil {
		return response{}, err
	}
	if q.Cursor != "" && !isID(sandboxIDs, q.Cursor) {
		return response{}, page.ErrCursor
	}
	status := q.All.Get("status")
	if !slices.Contains([]string{"", statusIdle, statusStarting, statusReady, statusFailed, statusExpired}, status) {
		return response{}, errInvalid("status", "must be idle, starting, ready, failed or expired")
	}
	b := page.Builder[sandbox]{Query: q, Cursor: func(last sandbox) string { return last.ID }}
	found, err := rows(c.Context(), a.db, listSQL, c.owner, q.Cursor, status, b.Rows())
	if err != nil {
		return response{}, fmt.Errorf("list sandboxes: %w", err)
	}
	for _, r := range found {
		if _, err := b.Add(a.view(r)); err != nil {
			return response{}, fmt.Errorf("list sandboxes: %w", err)
		}
	}
	return newResponse(http.StatusOK, b.Page())
}

func (a *API) get(c *call) (response, error) {
	id, err := c.id()
	if err != nil {
		return response{}, err
	}
	r, err := find(c.Context(), a.db, c.owner, id)
	if err != nil {
		return response{}, err
	}
	return newResponse(http.StatusOK, a.view(r))
}
