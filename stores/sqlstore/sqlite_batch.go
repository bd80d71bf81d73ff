package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"
)

// A txBatch runs functions one after another in one transaction, each in the
// goroutine of its caller, which hands the batch on to the next.
type txBatch struct {
	store *Store
	tx    *sql.Tx
	now   *clock
	began time.Time
	todo  []*ticket[job]
	ran   []*ticket[job] // what is committed with the batch
}

// How long a batch begins functions, so that others come to write, and how
// often a function is run again because of another one.
const (
	txBatchTime = 20 * time.Millisecond
	maxLosses   = 3
)

var (
	errEnded = errors.New("the transaction ended before the function did: the function, or the database because of an error, ended it")
	errOften = errors.New("other functions made the database roll the transaction back too often")
)

// startRuns begins a batch and gives the first function its turn.
func (s *Store) startRuns(tickets []*ticket[job]) {
	b := &txBatch{store: s, began: time.Now(), todo: tickets}
	b.guard(func() {
		if err := b.begin(); err != nil {
			b.abandon(err)
			return
		}
		b.pass()
	})
}

// guard ends the batch if f panics: nobody is to wait for ever.
func (b *txBatch) guard(f func()) {
	whole := false
	defer func() {
		if !whole {
			b.abandon(errPanic)
		}
	}()
	f()
	whole = true
}

// abandon gives up the transaction and everyone in it.
func (b *txBatch) abandon(err error) {
	if b.tx != nil {
		_ = b.tx.Rollback()
	}
	b.store.writer.discard()
	for _, t := range slices.Concat(b.ran, b.todo) {
		b.store.queue.answer(t, err)
	}
	b.store.queue.next()
}

func (b *txBatch) use(f func(*direct) error) error { return b.store.writer.use(f) }

// begin begins the transaction with the write lock, and answers those whose
// function does not run.
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
	return b.use(func(d *direct) error {
		if _, err := d.exec("lock", nil); err != nil {
			return err
		}
		if b.now, err = readClock(d); err != nil {
			return err
		}
		b.todo = slices.DeleteFunc(b.todo, func(t *ticket[job]) bool { return !b.admit(d, t) })
		return nil
	})
}

// admit says whether the ticket's function runs in this batch.
func (b *txBatch) admit(d *direct, t *ticket[job]) bool {
	runs, err := t.job.run.look(d, b.now)
	if !runs || err != nil {
		b.store.queue.answer(t, err)
		return false
	}
	t.job.run.batch = b
	b.store.queue.offer(t)
	return true
}

// pass gives the next function its turn, or ends the batch.
func (b *txBatch) pass() {
	for len(b.todo) > 0 && (len(b.ran) == 0 || time.Since(b.began) < txBatchTime) {
		t := b.todo[0]
		b.todo = b.todo[1:]
		if t.job.run.ended {
			if !b.finish(t, nil) {
				return
			}
			continue
		}
		if b.store.queue.give(t) {
			return
		}
	}
	b.commit()
}

// takeTurn runs the ticket's function, in its caller's goroutine.
func takeTurn(t *ticket[job]) { t.job.run.batch.turn(t) }

func (b *txBatch) turn(t *ticket[job]) {
	r := t.job.run
	if !b.savepoint(t) {
		return
	}
	r.panicked = true
	defer func() {
		b.guard(func() {
			if b.finish(t, b.endSavepoint(r)) {
				b.pass()
			}
		})
	}()
	r.settlement, r.err = r.fn(r.ctx, b.tx, r.record)
	r.panicked = false
}

func (b *txBatch) savepoint(t *ticket[job]) (open bool) {
	b.guard(func() {
		err := b.use(func(d *direct) error {
			_, err := d.exec("savepoint", nil)
			return err
		})
		if open = err == nil; !open {
			b.lose(t, err)
		}
	})
	return open
}

// endSavepoint keeps what the function wrote, or undoes it. It fails if the
// transaction is not open any more.
func (b *txBatch) endSavepoint(r *run) error {
	return b.use(func(d *direct) error {
		if r.panicked || r.err != nil {
			if _, err := d.exec("undo", nil); err != nil {
				return err
			}
		}
		_, err := d.exec("keep", nil)
		return err
	})
}

// finish records how the function ended, and says whether the batch goes on.
func (b *txBatch) finish(t *ticket[job], err error) bool {
	r := t.job.run
	if err != nil {
		b.lose(t, errors.Join(errEnded, err))
		return false
	}
	if r.panicked {
		return true
	}
	if err := b.use(func(d *direct) error { return r.write(d, b.now) }); err != nil {
		b.lose(t, err)
		return false
	}
	b.ran = append(b.ran, t)
	return true
}

// commit commits the batch and answers everyone in it. What did not get its
// turn goes back into the queue.
func (b *txBatch) commit() {
	q := &b.store.queue
	q.back(b.todo)
	b.todo = nil
	if err := b.tx.Commit(); err != nil {
		b.doubt(err)
		return
	}
	for _, t := range b.ran {
		t.job.run.settled(b.now)
		q.answer(t, nil)
	}
	q.next()
}
