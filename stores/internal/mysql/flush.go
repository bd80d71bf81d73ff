package mysql

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/server"
)

// InnoDB makes a commit visible, and releases its locks, before it has flushed
// the redo log; only the caller that commits waits for the flush. With the binary
// log on, it shows a commit after it is flushed. So without the binary log, a
// result that another process has just committed can be read and still be lost in
// a crash. A flusher makes a commit of its own before such a result is returned. The
// log is flushed in order, so everything that was read before is flushed, too.
// Concurrent callers share one commit.
type flusher struct {
	known record.Hints // settled records that are known to be on disk

	turn sync.Mutex // one round commits at a time
	mu   sync.Mutex
	next *flushRound // has not begun; nil: there is none
}

// A flushRound is one commit on behalf of every caller that read before it began.
type flushRound struct {
	done chan struct{}
	err  error
}

// flushWindow is how long after its settlement a record may not be on disk.
// A server whose disk needs longer for a flush has come to a halt.
const flushWindow = time.Minute

// Durable returns once the settled record that was read is on disk. It costs nothing for a
// record that was settled longer ago, or that this process knows to be on disk.
func (m *dialect) Durable(l server.Session, k *record.Key, r *record.Stored) error {
	if r == nil || r.SettledAt.IsZero() || r.SettledFor > flushWindow {
		return nil
	}
	mark := flushMark(k, r.Fence)
	if m.flush.known.Has(&mark) {
		return nil
	}
	err := m.flushed(l)
	if err == nil {
		m.flush.known.Add(&mark)
	}
	return err
}

// flushed returns once everything that was read before is on disk.
func (m *dialect) flushed(l server.Session) error {
	if m.binlog {
		return nil
	}
	return m.flush.wait(l.Ctx, func() error {
		// Others wait for the round, too, so it does not end with one caller's context.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(l.Ctx), server.StepTimeout)
		defer cancel()
		_, err := l.Store.Session(ctx).Exec("flush")
		return err
	})
}

// Settled notes a record whose settlement the server has confirmed.
func (m *dialect) Settled(k *record.Key, fence int64) {
	mark := flushMark(k, fence)
	m.flush.known.Add(&mark)
}

// flushMark names one settlement of a record: a fence is settled once.
func flushMark(k *record.Key, fence int64) [32]byte {
	mark := k.Hash
	binary.LittleEndian.PutUint64(mark[2:], binary.LittleEndian.Uint64(mark[2:])^uint64(fence)) // any 64 bits will do
	return mark
}

// wait joins the next round, or leads it.
func (f *flusher) wait(ctx context.Context, commit func() error) error {
	f.mu.Lock()
	r := f.next
	leads := r == nil
	if leads {
		r = &flushRound{done: make(chan struct{})}
		f.next = r
	}
	f.mu.Unlock()
	if leads {
		f.turn.Lock()
		f.mu.Lock()
		f.next = nil // a later caller may have read what this commit does not cover
		f.mu.Unlock()
		r.err = commit()
		f.turn.Unlock()
		close(r.done)
		return r.err
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}
