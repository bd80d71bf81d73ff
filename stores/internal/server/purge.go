package server

import (
	"context"
	"database/sql/driver"
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// purgeBatch is how many rows a statement deletes.
const purgeBatch = 1000

func (s *Store) Purge(ctx context.Context, limit int) (purged int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	for purged < limit {
		batch := min(limit-purged, purgeBatch)
		rows, n, err := s.dialect.Purge(s.Session(ctx), batch)
		purged += n
		if err != nil {
			return purged, err
		}
		if rows < batch {
			break
		}
	}
	for purged < limit {
		n, err := s.dialect.Lapse(s.Session(ctx), min(limit-purged, purgeBatch))
		purged += n
		if err != nil || n == 0 {
			return purged, err
		}
	}
	return purged, nil
}

// Unresolved counts the records whose outcome nobody knows.
func (s *Store) Unresolved(ctx context.Context) (n int, oldest time.Duration, err error) {
	err = s.Session(ctx).Query("unresolved", func(v []driver.Value) error {
		n, oldest, err = record.ReadUnresolved(v)
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

// Cover makes sure that rows whose fences are no higher than highest can be
// deleted, and returns up to which fence they can. It raises the floor, and then
// waits: a claim that read the old floor and has yet to insert its row would
// meet neither the row nor the floor. The floor rises to the clock, so that for as
// long as records are kept the next purges need no such wait.
func (l Session) Cover(highest, now int64, wait time.Duration) (fence int64, err error) {
	c := &l.Store.covered
	c.mu.Lock()
	defer c.mu.Unlock()
	if highest <= c.fence {
		return c.fence, nil
	}
	to := max(highest, now)
	if _, err := l.Exec("raise floor", to); err != nil {
		return 0, err
	}
	select {
	case <-time.After(wait):
		c.fence = to
		return to, nil
	case <-l.Ctx.Done():
		return 0, l.Ctx.Err()
	}
}

// Uncover makes the next purge raise the floor again: the database does not have
// it any more, as after a failover.
func (l Session) Uncover() {
	c := &l.Store.covered
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fence = 0
}
