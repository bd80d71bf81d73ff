package sandboxes

import (
	"context"
	"os"
	"strings"
	"time"
)

// sweepEvery is how long a session may outlive its end.
const sweepEvery = time.Second

// Run ends sessions whose sandbox expired or was idle too long, and those whose
// server died, until ctx ends.
func (a *API) Run(ctx context.Context) error {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			a.sweep(ctx)
		}
	}
}

const (
	sessionsSQL = `SELECT ` + columns + ` FROM sandboxes_sandboxes WHERE session_id IS NOT NULL`
	dueSQL      = sessionsSQL + ` AND (idle_expires_at < ` + now + ` OR expires_at < ` + now + `)`
	deletedSQL  = `SELECT ` + columns + ` FROM sandboxes_sandboxes WHERE deleted_at IS NOT NULL`

	// endDueSQL looks again: a keepalive may have come in between.
	endDueSQL = `UPDATE sandboxes_sandboxes SET ` + noSession + `
WHERE session_id = ? AND (idle_expires_at < ` + now + ` OR expires_at < ` + now + `) RETURNING ` + columns
)

// sweep brings the sessions that run, and the rows that name them, together. A
// part that fails is logged and comes again in the next sweep.
func (a *API) sweep(ctx context.Context) {
	ctx, done := a.detach(ctx)
	defer done()
	a.each(ctx, dueSQL, func(r row) error {
		r2, ended, err := a.change(ctx, endDueSQL, r.session.id)
		if err != nil || !ended {
			return err
		}
		return a.kill(ctx, r.session.id, r2.session.handle)
	})
	mine := a.sessions.all() // before the rows: a session is in the list first
	read := a.each(ctx, sessionsSQL, func(r row) error {
		delete(mine, r.session.id)
		return a.check(ctx, r.session)
	})
	for id, handle := range mine {
		if read && handle != "" {
			a.note(ctx, a.kill(ctx, id, handle))
		}
	}
	a.each(ctx, deletedSQL, func(r row) error { return a.remove(ctx, r) })
}

// check ends a session whose server died or lost it, and takes note of one that
// ended by itself.
func (a *API) check(ctx context.Context, s session) error {
	lost := s.state == statusStarting && s.server == a.server && !a.sessions.has(s.id)
	if lost || !serverRuns(s.server) {
		_, err := a.end(ctx, s.id)
		return err
	}
	if s.state == statusReady && s.server == a.server && !a.cfg.Runtime.Alive(s.handle) {
		_, _, err := a.change(ctx, failSQL, s.id)
		a.sessions.drop(s.id)
		return err
	}
	return nil
}

// each does something with every row; read says whether it saw them all.
func (a *API) each(ctx context.Context, query string, do func(row) error) (read bool) {
	list, err := rows(ctx, a.db, query)
	if err != nil {
		a.note(ctx, err)
		return false
	}
	for _, r := range list {
		a.note(ctx, do(r))
	}
	return true
}

func (a *API) note(ctx context.Context, err error) {
	if err != nil {
		a.cfg.Log.ErrorContext(ctx, "sandboxes: sweep", "error", err)
	}
}

// A server's name starts with the handle of its process.
func newServerName() (string, error) {
	handle, err := identify(os.Getpid())
	return handle + "/" + newID(serverIDs), err
}

func serverRuns(name string) bool {
	handle, _, _ := strings.Cut(name, "/")
	return running(handle)
}
