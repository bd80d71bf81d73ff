package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// findSharedCache finds connections that share one cache. No pragma says so. Such a connection
// can be told to read what another one has written and not committed, which it does nowhere else.
func (s *Store) findSharedCache(ctx context.Context) (*onlyonce.Finding, error) {
	conn, err := s.db.Conn(ctx) // now: the op must not wait for it
	if err != nil {
		return nil, err
	}
	o := &sharedOp{reads: func() (int64, error) { return s.readFloor(ctx, conn) }}
	err = s.readUncommitted(ctx, conn, func() error { return s.do(ctx, o) })
	if err = errors.Join(err, conn.Close()); err != nil || !o.shared {
		return nil, err
	}
	f := engine.NewFinding(riskShared, "the pool's connections share a cache (cache=shared): a read waits for the transaction of a function, however long that takes, or sees what is rolled back later",
		"take cache=shared out of the DSN, and SQLITE_ENABLE_SHARED_CACHE out of the program")
	return &f, nil
}

// readUncommitted calls f while the connection may read what is not committed.
func (s *Store) readUncommitted(ctx context.Context, conn *sql.Conn, f func() error) (err error) {
	var was int
	if err := conn.QueryRowContext(ctx, s.text["read uncommitted"]).Scan(&was); err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, with("set read uncommitted", "{on}", 1)); err != nil {
		return err
	}
	defer func() {
		_, e := conn.ExecContext(context.WithoutCancel(ctx), with("set read uncommitted", "{on}", was))
		err = errors.Join(err, e)
	}()
	return f()
}

func (s *Store) readFloor(ctx context.Context, conn *sql.Conn) (floor int64, err error) {
	return floor, conn.QueryRowContext(ctx, s.text["current floor"]).Scan(&floor)
}

// A sharedOp finds out whether another connection sees a change of the writer's that is not
// committed. It undoes the change.
type sharedOp struct {
	reads  func() (floor int64, err error) // on the other connection
	shared bool
}

func (*sharedOp) alone(engine.Runner) (done bool, err error) { return false, nil }

func (o *sharedOp) apply(s engine.Runner, _ *clock) error {
	var before int64
	err := s.Query("current floor", nil, func(v []driver.Value) error {
		r := record.Reader{Values: v}
		before = r.Int("floor")
		return r.Err
	})
	if err == nil {
		_, err = s.Exec("savepoint", nil)
	}
	if err != nil {
		return err
	}
	_, err = s.Exec("raise floor by one", nil)
	if err == nil {
		var seen int64
		seen, err = o.reads()
		if o.shared = isLocked(err) || err == nil && seen != before; o.shared {
			err = nil
		}
	}
	for _, undo := range []string{"undo", "keep"} {
		if _, e := s.Exec(undo, nil); e != nil {
			return errors.Join(err, e)
		}
	}
	return err
}
