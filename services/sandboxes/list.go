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

// list answers the owner's sandboxes, the oldest first: all, or those of one status.
func (a *API) list(c *call) (answer, error) {
	q, err := page.Parse(c.Request)
	if err != nil {
		return answer{}, err
	}
	if q.Cursor != "" && !isID(sandboxIDs, q.Cursor) {
		return answer{}, page.ErrCursor
	}
	status := q.All.Get("status")
	if !slices.Contains([]string{"", statusIdle, statusStarting, statusReady, statusFailed, statusExpired}, status) {
		return answer{}, errInvalid("status", "must be idle, starting, ready, failed or expired")
	}
	found, err := rows(c.Context(), a.db, listSQL, c.owner, q.Cursor, status, q.Limit+1)
	if err != nil {
		return answer{}, fmt.Errorf("list sandboxes: %w", err)
	}
	list := make([]sandbox, len(found))
	for i, r := range found {
		list[i] = a.view(r)
	}
	return newAnswer(http.StatusOK, page.Cut(list, q, func(last sandbox) string { return last.ID }))
}

func (a *API) get(c *call) (answer, error) {
	id, err := c.id()
	if err != nil {
		return answer{}, err
	}
	r, err := find(c.Context(), a.db, c.owner, id)
	if err != nil {
		return answer{}, err
	}
	return newAnswer(http.StatusOK, a.view(r))
}
