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
		rows, n, err := s.dialect.Purge(s.Runner(ctx), batch)
		purged += n
		if err != nil {
			return purged, err
		}
		if rows < batch {
			break
		}
	}
	for _, change := range []func(Runner, int) (int, error){s.dialect.Forget, s.dialect.Lapse} {
		for n := -1; n != 0 && purged < limit; purged += n {
			if n, err = change(s.Runner(ctx), min(limit-purged, purgeBatch)); err != nil {
				return purged + n, err
			}
		}
	}
	return purged, nil
}

// Unresolved counts the records whose outcome is unknown.
func (s *Store) Unresolved(ctx context.Context) (n int, oldest time.Duration, err error) {
	err = s.Runner(ctx).Query("unresolved", func(v []driver.Value) error {
		n, oldest, err = record.ReadUnresolved(v)
		return err
	})
	return n, oldest, err
}

// A covered value is a fence that the floor has covered for longer than a claim may use a
// floor that it has read. Every claim that gives a fence from now on has either read a
// floor that is as high, or reads it again.
type covered struct {
	mu    sync.Mutex
	fence int64
}

// Cover makes it safe to delete rows with fences up to highest, and returns the fence up to
// which it is. It raises the floor and then waits, because a claim that has read the old
// floor and has yet to insert its row would see neither the deleted row nor the new floor.
// The floor rises to the clock, so that later purges of records that are already there
// need not wait.
func (l Runner) Cover(highest, now int64, wait time.Duration) (fence int64, err error) {
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

// Uncover makes the next purge raise the floor again, because the database has lost it, as
// after a failover.
func (l Runner) Uncover() {
	c := &l.Store.covered
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fence = 0
}
