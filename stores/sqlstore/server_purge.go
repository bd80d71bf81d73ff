package sqlstore

import (
	"context"
	"database/sql/driver"
	"sync"
	"time"
)

// serverPurgeBatch is how many rows a statement deletes.
const serverPurgeBatch = 1000

func (s *server) purge(ctx context.Context, limit int) (purged int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	for purged < limit {
		batch := min(limit-purged, serverPurgeBatch)
		rows, n, err := s.dialect.purge(s.line(ctx), batch)
		purged += n
		if err != nil {
			return purged, err
		}
		if rows < batch {
			break
		}
	}
	for purged < limit {
		n, err := s.dialect.lapse(s.line(ctx), min(limit-purged, serverPurgeBatch))
		purged += n
		if err != nil || n == 0 {
			return purged, err
		}
	}
	return purged, nil
}

// unresolved counts the records whose outcome nobody knows.
func (s *server) unresolved(ctx context.Context) (n int, oldest time.Duration, err error) {
	err = s.line(ctx).query("unresolved", func(v []driver.Value) error {
		n, oldest, err = readUnresolved(v)
		return err
	})
	return n, oldest, err
}

// A covered value is a fence that the floor has been at or above for longer than
// a claim goes by a floor that it read before: every claim that gives a fence
// from now on either read a floor that is as high, or looks again.
type covered struct {
	mu    sync.Mutex
	fence int64
}

// cover makes sure that rows whose fences are no higher than highest can be
// deleted, and returns up to which fence they can. It raises the floor, and then
// waits: a claim that read the old floor and has yet to insert its row would
// meet neither the row nor the floor. The floor rises to the clock, so that for as
// long as records are kept the next purges need no such wait.
func (l serverSession) cover(highest, now int64, wait time.Duration) (fence int64, err error) {
	c := &l.server.covered
	c.mu.Lock()
	defer c.mu.Unlock()
	if highest <= c.fence {
		return c.fence, nil
	}
	to := max(highest, now)
	if _, err := l.exec("raise floor", to); err != nil {
		return 0, err
	}
	select {
	case <-time.After(wait):
		c.fence = to
		return to, nil
	case <-l.ctx.Done():
		return 0, l.ctx.Err()
	}
}

// forget makes the next purge raise the floor again: the database does not have
// it any more, as after a failover.
func (c *covered) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fence = 0
}
