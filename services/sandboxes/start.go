package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

const (
	// sessionsOf counts the sessions of the owner or, if ?3 is true, of all owners. It reads
	// the list of all sessions, which is short, while an owner may have many sandboxes.
	sessionsOf = `(SELECT count(*) FROM sandboxes_sandboxes INDEXED BY sandboxes_sandboxes_session WHERE session_id IS NOT NULL AND (?3 OR owner = ?2))`

	// reserveSQL gives the sandbox a starting session, if it has none and its owner may
	// have another one.
	reserveSQL = `UPDATE sandboxes_sandboxes
SET session_id = ?5, session_state = 'starting', session_server = ?6, session_handle = NULL, idle_expires_at = NULL
WHERE id = ?1 AND owner = ?2 AND deleted_at IS NULL AND session_id IS NULL AND (expires_at IS NULL OR expires_at >= ` + now + `)
AND ` + sessionsOf + ` < ?4
RETURNING ` + columns

	// fullSQL returns the sandbox if only the number of other sessions prevents another
	// one.
	fullSQL = `SELECT ` + columns + ` FROM sandboxes_sandboxes
WHERE id = ?1 AND owner = ?2 AND deleted_at IS NULL AND session_id IS NULL AND (expires_at IS NULL OR expires_at >= ` + now + `)
AND ` + sessionsOf + ` >= ?4`

	readySQL = `UPDATE sandboxes_sandboxes SET session_state = 'ready', session_handle = ?2, idle_expires_at = unixepoch() + ?3
WHERE session_id = ?1 AND (expires_at IS NULL OR expires_at >= ` + now + `)
RETURNING ` + columns

	failSQL = `UPDATE sandboxes_sandboxes SET session_id = NULL, session_state = 'failed', idle_expires_at = NULL
WHERE session_id = ? RETURNING ` + columns

	keepaliveSQL = `UPDATE sandboxes_sandboxes SET idle_expires_at = iif(session_state = 'ready', unixepoch() + ?3, idle_expires_at)
WHERE id = ?1 AND owner = ?2 AND deleted_at IS NULL AND (expires_at IS NULL OR expires_at >= ` + now + `)
RETURNING ` + columns
)

// lookAgain is how long a start waits before it reads the state of another start
// again.
const lookAgain = 20 * time.Millisecond

// start responds once a session of the sandbox is running. It counts as a keepalive.
func (a *API) start(c *call) (response, error) {
	id, err := c.id()
	if err != nil {
		return response{}, err
	}
	for end := time.Now().Add(a.cfg.Wait); ; {
		r, err := find(c.Context(), a.db, c.owner, id)
		if err != nil {
			return response{}, err
		}
		r, ready, err := a.ensure(c.Context(), c, r, end)
		if err != nil {
			return response{}, err
		}
		if ready {
			return newResponse(http.StatusOK, a.view(r))
		}
	}
}

// ensure takes one step toward a running session. It waits until end for another
// call's start.
func (a *API) ensure(ctx context.Context, c *call, r row, end time.Time) (now row, ready bool, err error) {
	s := r.session
	switch {
	case r.Status == statusExpired:
		return r, false, errExpired(r.sandbox)
	case s.id == "":
		return a.launch(ctx, c, r.ID)
	case s.state == statusReady && a.cfg.Runtime.Alive(s.handle):
		now, kept, err := a.change(ctx, keepaliveSQL, r.ID, c.owner, a.idleSeconds())
		return now, kept && now.session.state == statusReady, err
	case s.state == statusReady || !serverRuns(s.server):
		_, err := a.end(ctx, s.id)
		return r, false, err
	case !time.Now().Before(end):
		return r, false, errInProgress(time.Second)
	}
	select {
	case <-time.After(lookAgain):
	case <-ctx.Done():
	}
	return r, false, nil
}

// launch starts a session unless the sandbox has one by now, or has expired. It
// continues when the caller disconnects.
func (a *API) launch(ctx context.Context, c *call, id string) (r row, ready bool, err error) {
	ctx, stop := a.detach(ctx)
	defer stop()
	sessionID := newID(sessionIDs)
	if err := a.sessions.add(sessionID); err != nil {
		return row{}, false, err
	}
	r, reserved, err := a.change(ctx, reserveSQL, id, c.owner, c.anonymous(), a.cfg.MaxSessions, sessionID, a.server)
	if err != nil || !reserved {
		a.sessions.drop(sessionID)
		return row{}, false, errors.Join(err, a.full(ctx, c, id))
	}
	handle, err := a.run(ctx, r)
	if err != nil {
		return row{}, false, a.notStarted(ctx, sessionID, r.WorkspaceID, err)
	}
	a.sessions.started(sessionID, handle)
	workspace := r.WorkspaceID
	r, ready, err = a.change(ctx, readySQL, sessionID, handle, a.idleSeconds())
	if err != nil || !ready {
		return row{}, false, errors.Join(err, a.kill(ctx, sessionID, handle), a.removeWorkspace(ctx, workspace))
	}
	return r, true, nil
}

// full returns a problem if the sandbox has no session because there are too many.
func (a *API) full(ctx context.Context, c *call, id string) error {
	_, full, err := one(ctx, a.db, fullSQL, id, c.owner, c.anonymous(), a.cfg.MaxSessions)
	if err == nil && full {
		err = errTooManySessions(a.cfg.MaxSessions, c.anonymous())
	}
	return err
}

// notStarted records that a session did not start. It is not an error if a delete or a
// stop removed the session meanwhile.
func (a *API) notStarted(ctx context.Context, sessionID, workspace string, cause error) error {
	_, ours, err := a.change(ctx, failSQL, sessionID)
	a.sessions.drop(sessionID)
	err = errors.Join(err, a.removeWorkspace(ctx, workspace))
	if ours || err != nil {
		return fmt.Errorf("start a session: %w", errors.Join(cause, err))
	}
	return nil
}

func (a *API) run(ctx context.Context, r row) (handle string, err error) {
	dir, err := a.makeWorkspace(r.WorkspaceID)
	if err != nil {
		return "", err
	}
	p, ok := a.cfg.Profiles[r.Profile]
	if !ok {
		return "", fmt.Errorf("the profile %q is no longer configured", r.Profile)
	}
	return a.cfg.Runtime.Start(ctx, Session{Dir: dir, Command: p.Command, Args: p.Args})
}

func (a *API) keepalive(c *call) (response, error) {
	id, err := c.id()
	if err != nil {
		return response{}, err
	}
	r, kept, err := a.change(c.Context(), keepaliveSQL, id, c.owner, a.idleSeconds())
	if err == nil && !kept {
		if r, err = find(c.Context(), a.db, c.owner, id); err == nil {
			err = errExpired(r.sandbox)
		}
	}
	if err != nil {
		return response{}, err
	}
	return newResponse(http.StatusOK, a.view(r))
}

func (a *API) idleSeconds() int64 { return int64(a.cfg.IdleTimeout / time.Second) }
