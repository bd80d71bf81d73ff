package sandboxes

import (
	"context"
	"os"
	"strings"
	"time"
)

// sweepEvery is the interval of sweeps: how long a session may outlive its end.
const sweepEvery = time.Second

// Run ends sessions whose sandbox has expired or that were idle for too long, and those
// whose server died, until ctx ends.
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

	// endDueSQL checks the time again, because a keepalive may have moved it.
	endDueSQL = `UPDATE sandboxes_sandboxes SET ` + noSession + `
WHERE session_id = ? AND (idle_expires_at < ` + now + ` OR expires_at < ` + now + `) RETURNING ` + columns
)

// sweep makes the running sessions agree with the rows that name them. A part that
// fails is logged and repeated in the next sweep.
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
	mine := a.sessions.all() // read before the rows, because a session is in the list first
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

// check ends a session whose server died or lost it, and removes one that ended by
// itself from its sandbox.
func (a *API) check(ctx context.Context, s sessionRow) error {
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

// each calls do for every row; read reports whether it read all rows.
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
		a.cfg.Log.ErrorContext(ctx, "sandboxes: a sweep failed", "error", err)
	}
}

// newServerName returns a server's name, which begins with the handle of its process.
func newServerName() (string, error) {
	handle, err := identify(os.Getpid())
	return handle + "/" + newID(serverIDs), err
}

func serverRuns(name string) bool {
	handle, _, _ := strings.Cut(name, "/")
	return running(handle)
}
