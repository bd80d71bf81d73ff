package sandboxes

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
)

// How many sandboxes a page has.
const (
	defaultLimit = 50
	maxLimit     = 200
)

// A page says which sandboxes to list.
type page struct {
	limit  int
	after  string // the last id of the page before
	status string // any, if empty
}

func parsePage(query string) (p page, err error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return p, errInvalid("query", "must be well-formed")
	}
	p.limit = defaultLimit
	if text := values.Get("limit"); text != "" {
		p.limit, err = strconv.Atoi(text)
		if err != nil || p.limit < 1 || p.limit > maxLimit {
			return p, errInvalid("limit", fmt.Sprintf("must be an integer from 1 to %d", maxLimit))
		}
	}
	if p.after = values.Get("cursor"); p.after != "" && !isID(sandboxIDs, p.after) {
		return p, errInvalid("cursor", "must be the next_cursor of a page")
	}
	p.status = values.Get("status")
	known := []string{"", statusIdle, statusStarting, statusReady, statusFailed, statusExpired}
	if !slices.Contains(known, p.status) {
		return p, errInvalid("status", "must be idle, starting, ready, failed or expired")
	}
	return p, nil
}

const listSQL = `SELECT ` + columns + ` FROM sandboxes_sandboxes
WHERE owner = ?1 AND id > ?2 AND deleted_at IS NULL AND (?3 = '' OR ` + status + ` = ?3)
ORDER BY id LIMIT ?4`

// list answers the owner's sandboxes, the oldest first.
func (a *API) list(c *call) (answer, error) {
	p, err := parsePage(c.URL.RawQuery)
	if err != nil {
		return answer{}, err
	}
	found, err := rows(c.Context(), a.db, listSQL, c.owner, p.after, p.status, p.limit+1)
	if err != nil {
		return answer{}, fmt.Errorf("list sandboxes: %w", err)
	}
	var body struct {
		Items      []sandbox `json:"items"`
		NextCursor *string   `json:"next_cursor"`
	}
	if len(found) > p.limit {
		found = found[:p.limit]
		body.NextCursor = &found[p.limit-1].ID
	}
	body.Items = make([]sandbox, len(found))
	for i, r := range found {
		body.Items[i] = a.view(r)
	}
	return newAnswer(http.StatusOK, body)
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
