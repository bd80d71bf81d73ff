package sandboxes

import (
	"context"
	"fmt"
	"net/http"
)

// noSession removes a sandbox's session. The handle stays, so that the session can be
// found after a crash before it has ended.
const noSession = `session_id = NULL, session_state = NULL, idle_expires_at = NULL`

const (
	stopSQL = `UPDATE sandboxes_sandboxes SET ` + noSession + `
WHERE id = ? AND owner = ? AND deleted_at IS NULL RETURNING ` + columns

	endSQL = `UPDATE sandboxes_sandboxes SET ` + noSession + ` WHERE session_id = ? RETURNING ` + columns

	deleteSQL = `UPDATE sandboxes_sandboxes SET ` + noSession + `, deleted_at = unixepoch()
WHERE id = ? AND owner = ? AND deleted_at IS NULL RETURNING ` + columns

	// forgetSQL deletes a row and returns it.
	forgetSQL = `DELETE FROM sandboxes_sandboxes WHERE id = ? AND deleted_at IS NOT NULL RETURNING ` + columns
)

func (a *API) stop(c *call) (response, error) {
	id, err := c.id()
	if err != nil {
		return response{}, err
	}
	ctx, done := a.detach(c.Context())
	defer done()
	r, found, err := a.change(ctx, stopSQL, id, c.owner)
	switch {
	case err != nil:
		return response{}, fmt.Errorf("stop a sandbox: %w", err)
	case !found:
		return response{}, errNotFound()
	}
	if err := a.halt(ctx, r.session.handle); err != nil {
		return response{}, err
	}
	return newResponse(http.StatusOK, a.view(r))
}

// delete first marks the sandbox as deleted, so that nothing is started in it any
// longer. If the rest fails, sweep completes it.
func (a *API) delete(c *call) (response, error) {
	id, err := c.id()
	if err != nil {
		return response{}, err
	}
	ctx, done := a.detach(c.Context())
	defer done()
	r, found, err := a.change(ctx, deleteSQL, id, c.owner)
	switch {
	case err != nil:
		return response{}, fmt.Errorf("delete a sandbox: %w", err)
	case !found:
		return response{}, errNotFound()
	}
	if err := a.remove(ctx, r); err != nil {
		return response{}, err
	}
	return response{status: http.StatusNoContent}, nil
}

// remove removes the session, the workspace and the row of a deleted sandbox.
func (a *API) remove(ctx context.Context, r row) error {
	if err := a.halt(ctx, r.session.handle); err != nil {
		return err
	}
	if err := a.removeWorkspace(ctx, r.WorkspaceID); err != nil {
		return err
	}
	_, _, err := a.change(ctx, forgetSQL, r.ID)
	return err
}

// end removes a session from its sandbox and ends it; ended is false if the sandbox
// no longer had it.
func (a *API) end(ctx context.Context, id string) (ended bool, err error) {
	r, ended, err := a.change(ctx, endSQL, id)
	if err != nil || !ended {
		return false, err
	}
	return true, a.kill(ctx, id, r.session.handle)
}

// kill ends a session that no row names any longer.
func (a *API) kill(ctx context.Context, id, handle string) error {
	if err := a.halt(ctx, handle); err != nil {
		return err
	}
	a.sessions.drop(id)
	return nil
}

// halt ends the session of a handle, if there is one.
func (a *API) halt(ctx context.Context, handle string) error {
	if handle == "" {
		return nil
	}
	if err := a.cfg.Runtime.Stop(ctx, handle); err != nil {
		return fmt.Errorf("stop a session: %w", err)
	}
	return nil
}
