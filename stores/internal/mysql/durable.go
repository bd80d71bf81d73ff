package mysql

import (
	"context"
	"time"

	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/server"
)

// A commit of the store's own covers everything that was read before, in two cases:
//
// InnoDB makes a commit visible, and releases its locks, before it has flushed
// the redo log; only the caller that commits waits for the flush. With the binary
// log on, it shows a commit after it is flushed. So without the binary log, a
// result that another process has just committed can be read and still be lost in
// a crash. The log is flushed in order.
//
// With semi-synchronous replication, only the caller that commits waits for a replica. Others
// see the commit before, with the wait point AFTER_COMMIT, and with AFTER_SYNC if the wait ends
// early: because the connection was killed, or because the server was started again and found
// the transaction in its binary log. Replicas receive that log in order.

// flushWindow is how long after its settlement a record may not be on disk.
// A server whose disk needs longer for a flush has come to a halt.
const flushWindow = time.Minute

// Durable returns once the settled record that was read is on disk and, with semi-synchronous
// replication, on a replica. On disk are records that were settled longer ago, or that this
// process knows to be there. Others must be read again: the server may have crashed since, and
// come back without it.
func (m *dialect) Durable(l server.Runner, k *record.Key, look server.Look) (again bool, err error) {
	r := look.Found
	if r == nil || r.SettledAt.IsZero() || m.flush.Knows(k, r.Fence) {
		return false, nil
	}
	if r.Server == 0 && (m.binlog || r.SettledFor > flushWindow) {
		return false, nil
	}
	if !r.Outlasted(look.Before) {
		if again, err = m.Flushed(l, r.Server); again || err != nil {
			return again, err
		}
	}
	m.flush.Note(k, r.Fence)
	return false, nil
}

// Flushed returns once everything that was read before is on disk and, with semi-synchronous
// replication, on a replica. A server with a name has a binary log, so that it loses nothing of
// what it has shown when it is started again.
func (m *dialect) Flushed(l server.Runner, from int64) (again bool, err error) {
	if from == 0 && m.binlog {
		return false, nil
	}
	by, err := m.flush.Wait(l.Ctx, func() (int64, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(l.Ctx), server.StepTimeout)
		defer cancel()
		by, _, err := lastID(l.Store.Runner(ctx).Exec("flush"))
		return by, err
	})
	return from == 0 || by != from, err
}

// Settled notes a record whose settlement the server has confirmed.
func (m *dialect) Settled(k *record.Key, fence int64) { m.flush.Note(k, fence) }
