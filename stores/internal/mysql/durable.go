package mysql

import (
	"context"
	"time"

	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/server"
)

// InnoDB makes a commit visible, and releases its locks, before it has flushed
// the redo log; only the caller that commits waits for the flush. With the binary
// log on, it shows a commit after it is flushed. So without the binary log, a
// result that another process has just committed can be read and still be lost in
// a crash. The log is flushed in order, so a commit of the store's own covers everything
// that was read before.

// flushWindow is how long after its settlement a record may not be on disk.
// A server whose disk needs longer for a flush has come to a halt.
const flushWindow = time.Minute

// Durable returns once the settled record that was read is on disk. It costs nothing for a
// record that was settled longer ago, or that this process knows to be on disk. Otherwise, the
// record must be read again: the server may have crashed since, and come back without it.
func (m *dialect) Durable(l server.Session, k *record.Key, look server.Look) (again bool, err error) {
	r := look.Found
	if r == nil || r.SettledAt.IsZero() || r.SettledFor > flushWindow || m.flush.Knows(k, r.Fence) {
		return false, nil
	}
	if !r.IsSame(look.Before) {
		return m.Flushed(l, 0)
	}
	m.flush.Note(k, r.Fence)
	return false, nil
}

// Flushed returns once everything that was read before is on disk.
func (m *dialect) Flushed(l server.Session, _ int64) (again bool, err error) {
	if m.binlog {
		return false, nil
	}
	_, err = m.flush.Wait(l.Ctx, func() (int64, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(l.Ctx), server.StepTimeout)
		defer cancel()
		_, err := l.Store.Session(ctx).Exec("flush")
		return 0, err
	})
	return true, err
}

// Settled notes a record whose settlement the server has confirmed.
func (m *dialect) Settled(k *record.Key, fence int64) { m.flush.Note(k, fence) }
