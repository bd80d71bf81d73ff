package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce/stores/internal/group"
	"github.com/onlyonce-go/onlyonce/stores/internal/transact"
)

// A txBatch runs functions one after another in one transaction, each in the goroutine of
// its caller, which then passes the batch on to the next.
type txBatch struct {
	store      *Store
	tx         *sql.Tx
	token      []byte // of the transaction
	began      time.Time
	now        *clock
	joined     int64 // how often WithTx had been used when the clock was read
	todo       []*group.Ticket[job]
	handled    []*group.Ticket[job] // that have had their turn: they are finished after the commit
	txReplaced bool                 // a function ended the transaction, and another one is open now
}

// lane is the one lane of the queue: SQLite has one writer.
const lane = 0

// txBatchTime is how long a batch begins functions, so that other callers get to write.
const txBatchTime = 20 * time.Millisecond

// startRuns begins a batch and gives the first function its turn.
func (s *Store) startRuns(tickets []*group.Ticket[job]) {
	b := &txBatch{store: s, token: transact.NewToken(), began: time.Now(), todo: tickets}
	b.abandonOnPanic(func() {
		for _, t := range tickets {
			t.Job.run.batch = b
			s.queue.Offer(t)
		}
		if err := b.begin(); err != nil {
			b.abandon(err)
			return
		}
		b.next()
	})
}

// abandonOnPanic ends the batch if f panics, so that no caller waits forever.
func (b *txBatch) abandonOnPanic(f func()) {
	finished := false
	defer func() {
		if !finished {
			b.abandon(group.ErrPanic)
		}
	}()
	f()
	finished = true
}

// abandon rolls the transaction back and finishes every ticket of the batch with err.
func (b *txBatch) abandon(err error) {
	if b.tx != nil {
		_ = b.tx.Rollback()
	}
	b.store.writer.discard()
	for _, t := range slices.Concat(b.handled, b.todo) {
		b.store.queue.Finish(t, err)
	}
	b.store.queue.Next(lane)
}

func (b *txBatch) use(f func(*driverRunner) error) error { return b.store.writer.use(f) }

// begin begins the transaction with the write lock.
func (b *txBatch) begin() error {
	w := b.store.writer
	if err := w.ready(); err != nil {
		return err
	}
	tx, err := w.conn.BeginTx(context.Background(), nil)
	if err != nil {
		return err
	}
	b.tx = tx
	b.joined = b.store.shared.Load()
	return b.use(func(d *driverRunner) error {
		if _, err := d.Exec("lock", nil); err != nil {
			return err
		}
		b.now, err = b.store.startClock(d)
		return err
	})
}

// next gives the next function its turn, or ends the batch.
func (b *txBatch) next() {
	for len(b.todo) > 0 && b.takesAnother() {
		t := b.todo[0]
		b.todo = b.todo[1:]
		if b.store.queue.GrantTurn(t) {
			return
		}
	}
	b.commit()
}

// takesAnother reports whether the next function may run in the transaction.
func (b *txBatch) takesAnother() bool {
	n := len(b.handled)
	return n == 0 || time.Since(b.began) < txBatchTime && !b.handled[n-1].Job.run.alone && !b.todo[0].Job.run.alone
}

// takeTurn runs the ticket's function, in its caller's goroutine.
func takeTurn(t *group.Ticket[job]) { t.Job.run.batch.runTurn(t) }

func (b *txBatch) runTurn(t *group.Ticket[job]) {
	runs := false
	b.abandonOnPanic(func() { runs = b.start(t) })
	if !runs {
		return
	}
	r := t.Job.run
	r.panicked = true
	defer func() {
		b.abandonOnPanic(func() { b.finish(t, b.endSavepoint(r)) })
	}()
	r.began = time.Now()
	st, err := r.fn(r.ctx, b.tx, r.record)
	r.settlement, r.err = transact.Check(r.doing, st, err)
	r.panicked = false
}

// start reports whether the ticket's function runs, and makes a savepoint for it.
// Otherwise the batch has gone on. The record that decides may have been written in this
// transaction, so its caller gets it only after the commit.
func (b *txBatch) start(t *group.Ticket[job]) (runs bool) {
	r := t.Job.run
	err := b.use(func(d *driverRunner) (err error) {
		if err := b.look(d); err != nil {
			return err
		}
		runs, err = r.look(d, b.now)
		r.skipped = !runs
		if err != nil || !runs || r.settleOnly {
			return err
		}
		_, err = d.Exec("savepoint", nil)
		return err
	})
	switch {
	case err != nil:
		b.abort(t, err)
	case runs && r.settleOnly:
		b.finish(t, nil)
	case !runs:
		b.handled = append(b.handled, t)
		b.next()
	default:
		return true
	}
	return false
}

// look reads the clock again if a function used WithTx since.
func (b *txBatch) look(d *driverRunner) error {
	joined := b.store.shared.Load()
	if joined == b.joined {
		return nil
	}
	b.joined = joined
	return b.now.refresh(d)
}

// endSavepoint keeps or undoes the writes of the function. It fails if the
// transaction is no longer open.
func (b *txBatch) endSavepoint(r *funcRun) error {
	return b.use(func(d *driverRunner) error {
		if r.panicked || r.err != nil {
			if _, err := d.Exec("undo", nil); err != nil {
				return err
			}
		}
		_, err := d.Exec("keep", nil)
		return err
	})
}

// finish records how the function ended and continues with the batch.
func (b *txBatch) finish(t *group.Ticket[job], cause error) {
	r := t.Job.run
	if cause != nil {
		if b.txReplaced = strings.Contains(cause.Error(), "no such savepoint"); b.txReplaced {
			cause = nil // its text has the savepoint's name, which says nothing to a caller
		}
		b.abort(t, errors.Join(transact.ErrEnded, cause))
		return
	}
	err := b.use(func(d *driverRunner) error {
		if time.Since(r.began) >= clockTick { // a record's keep begins when its function has returned
			if err := b.now.refresh(d); err != nil {
				return err
			}
		}
		return r.write(d, b.now)
	})
	if err != nil {
		b.abort(t, err)
		return
	}
	r.settledAt = b.now.now
	if !r.panicked {
		b.handled = append(b.handled, t)
	}
	b.next()
}

// commit commits the batch and finishes its tickets. Those that did not get their turn go
// back into the queue.
func (b *txBatch) commit() {
	q := b.store.queue
	q.Back(b.todo)
	b.todo = nil
	if err := b.tx.Commit(); err != nil {
		b.resolveCommit(err)
		return
	}
	b.store.unkept.Store(0)
	for _, t := range b.handled {
		b.committed(t)
	}
	q.Next(lane)
}

// committed finishes a ticket whose part of the batch is committed.
func (b *txBatch) committed(t *group.Ticket[job]) {
	t.Job.run.applySettlement()
	b.store.queue.Finish(t, t.Job.run.rejected)
}
