package sandboxes

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// The statuses of a sandbox.
const (
	statusIdle     = "idle"
	statusStarting = "starting"
	statusReady    = "ready"
	statusFailed   = "failed"
	statusExpired  = "expired"
)

// A sandbox is a sandbox as its owner sees it.
type sandbox struct {
	ID            string     `json:"id"`
	Status        string     `json:"status"`
	Profile       string     `json:"profile"`
	WorkspaceID   string     `json:"workspace_id"`
	Capabilities  []string   `json:"capabilities"`
	CreatedAt     time.Time  `json:"created_at"`
	ExpiresAt     *time.Time `json:"expires_at"`
	IdleExpiresAt *time.Time `json:"idle_expires_at"`
}

// A row is a sandbox with its session.
type row struct {
	sandbox
	session sessionRow
}

// columns are the columns of a row, and status is its status by the database's clock.
// Times are compared with now including its fraction of a second: expires_at has none,
// and the sandbox expires when that second begins.
const (
	columns = `id, ` + status + `, profile, workspace_id, created_at, expires_at, idle_expires_at,
coalesce(session_id, ''), coalesce(session_state, ''), coalesce(session_server, ''), coalesce(session_handle, '')`
	status = `iif(expires_at < ` + now + `, 'expired', coalesce(session_state, 'idle'))`
	now    = `unixepoch('subsec')`
)

// A querier is the *sql.DB to read from, or the *sql.Tx of a change.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// rows runs a statement that returns columns.
func rows(ctx context.Context, on querier, statement string, args ...any) (list []row, err error) {
	result, err := on.QueryContext(ctx, statement, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, result.Close()) }()
	for result.Next() {
		r, err := scan(result)
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, result.Err()
}

// one is like rows for a statement that returns at most one row.
func one(ctx context.Context, on querier, statement string, args ...any) (r row, found bool, err error) {
	list, err := rows(ctx, on, statement, args...)
	if err != nil || len(list) == 0 {
		return row{}, false, err
	}
	return list[0], true, nil
}

func scan(result *sql.Rows) (r row, err error) {
	var created int64
	var expires, idle sql.NullInt64
	s := &r.session
	if err := result.Scan(&r.ID, &r.Status, &r.Profile, &r.WorkspaceID, &created, &expires, &idle, &s.id, &s.state, &s.server, &s.handle); err != nil {
		return row{}, err
	}
	r.CreatedAt, r.ExpiresAt, r.IdleExpiresAt = time.Unix(created, 0).UTC(), instant(expires), instant(idle)
	return r, nil
}

func instant(seconds sql.NullInt64) *time.Time {
	if !seconds.Valid {
		return nil
	}
	t := time.Unix(seconds.Int64, 0).UTC()
	return &t
}

// view returns r as its owner sees it.
func (a *API) view(r row) sandbox {
	s := r.sandbox
	s.Capabilities = append([]string{}, a.cfg.Profiles[s.Profile].Capabilities...)
	return s
}

const findSQL = `SELECT ` + columns + ` FROM sandboxes_sandboxes WHERE id = ? AND owner = ? AND deleted_at IS NULL`

// find returns the owner's sandbox, or a problem if there is none.
func find(ctx context.Context, on querier, owner, id string) (row, error) {
	r, found, err := one(ctx, on, findSQL, id, owner)
	if err == nil && !found {
		err = errNotFound()
	}
	return r, err
}
