package sqlite

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/rejectedtx"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/group"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/transact"
)

// An outcome is the result of a transaction that was to be committed.
type outcome int

const (
	outcomeInDoubt outcome = iota
	outcomeCommitted
	outcomeRolledBack
)

var errTooManyRollbacks = errors.New("other functions made the database roll the transaction back too often")

// maxRetries is how often a function runs again because another one made the database roll
// the transaction back.
const maxRetries = 3

// abort ends a transaction that the database ended, or that must not be committed, because
// of t's function. The other functions run again, unless one committed the transaction.
func (b *txBatch) abort(t *group.Ticket[job], cause error) {
	rolledBack := b.tx.Rollback() == nil && !b.txReplaced
	b.store.writer.discard()
	became := outcomeRolledBack
	if !rolledBack {
		became, _ = b.findCommit()
	}
	b.keepFences(append(slices.Clone(b.handled), t))
	if !rolledBack {
		cause = fmt.Errorf("%w: %w", onlyonce.ErrUnknown, cause)
	}
	again := b.failOffender(t, rejected(cause))
	for _, other := range b.handled {
		if b.shouldRetry(other, became, cause) {
			again = append(again, other)
		}
	}
	b.store.queue.Back(append(again, b.todo...))
	b.store.queue.Next(lane)
}

// resolveCommit finishes the tickets of a batch whose commit returned an error. Some errors
// come after the commit.
func (b *txBatch) resolveCommit(cause error) {
	b.store.writer.discard()
	became, err := b.findCommit()
	if became != outcomeCommitted {
		b.keepFences(b.handled)
	}
	if became == outcomeInDoubt {
		cause = fmt.Errorf("%w: %w: %w", onlyonce.ErrInDoubt, cause, err)
	}
	if became == outcomeRolledBack {
		cause = rejected(cause)
	}
	if rejectedtx.In(cause) != nil && len(b.handled) > 1 {
		b.runAlone(cause)
		return
	}
	for _, t := range b.handled {
		if became == outcomeCommitted {
			b.committed(t)
			continue
		}
		t.Job.run.record = onlyonce.Record{}
		b.store.queue.Finish(t, cause)
	}
	b.store.queue.Next(lane)
}

// runAlone runs the functions of a transaction again that SQLite rejected because of one of them,
// as with a deferred constraint. Each gets a transaction of its own.
func (b *txBatch) runAlone(cause error) {
	var again []*group.Ticket[job]
	for _, t := range b.handled {
		if t.Job.run.alone = true; b.shouldRetry(t, outcomeRolledBack, cause) {
			again = append(again, t)
		}
	}
	b.store.queue.Back(again)
	b.store.queue.Next(lane)
}

// rejected marks an error of a transaction that SQLite rejects because of a statement of its function.
func rejected(err error) error {
	text := err.Error() // the type of the error is the driver's, which this package does not import
	if errors.Is(err, errChanged) || errors.Is(err, onlyonce.ErrTooLarge) || strings.Contains(text, "constraint failed") || strings.Contains(text, "too big") {
		return &rejectedtx.Error{Cause: err}
	}
	return err
}

// findCommit looks for a record that only this transaction can have written. The first one
// that shows the outcome of the transaction is enough. If no function wrote anything, the
// transaction counts as committed.
func (b *txBatch) findCommit() (became outcome, err error) {
	became = outcomeCommitted
	for _, t := range b.handled {
		r := t.Job.run
		if r.skipped || r.leavesNothing() {
			continue
		}
		var now transact.Trace
		if err := b.use(func(d *driverRunner) (err error) {
			now, err = readTrace(d, &r.key)
			return err
		}); err != nil {
			return outcomeInDoubt, err
		}
		became = outcomeInDoubt
		c := transact.Commit{Token: b.token, Fence: r.record.Fence, Before: r.token}
		switch err = c.Committed(now); {
		case err == nil:
			return outcomeCommitted, nil
		case errors.Is(err, transact.ErrNotCommitted):
			return outcomeRolledBack, err
		}
	}
	return became, err
}

func readTrace(s engine.Runner, k *record.Key) (now transact.Trace, err error) {
	there := false
	err = s.Query("trace", (&keyArgs{k.Hash[:]}).list(), func(v []driver.Value) (err error) {
		there = true
		now, err = transact.ReadTrace(v)
		return err
	})
	if err == nil && !there {
		err = engine.ErrNoFence
	}
	return now, err
}

// clockTick is how long the database's clock may stand still.
const clockTick = time.Millisecond

// keepFences keeps the fences of functions whose transaction was not committed. If the
// database can't write, as on a full disk, the process remembers the highest one until it
// can, and other processes issue higher ones because the clock has moved on.
func (b *txBatch) keepFences(ran []*group.Ticket[job]) {
	highest := int64(0)
	for _, t := range ran {
		highest = max(highest, t.Job.run.record.Fence)
	}
	err := b.use(func(d *driverRunner) error {
		_, err := d.Exec("floor", (&floorArgs{highest}).list())
		return err
	})
	if err != nil {
		b.store.unkept.Store(max(highest, b.store.unkept.Load()))
		time.Sleep(clockTick)
	}
}

// failOffender finishes the offender's ticket, unless the error that its function returned
// still has to be recorded.
func (b *txBatch) failOffender(t *group.Ticket[job], cause error) (again []*group.Ticket[job]) {
	r := t.Job.run
	if r.err == nil {
		b.store.queue.Finish(t, cause)
		return nil
	}
	if b.again(t, true, cause) {
		again = append(again, t)
	}
	return again
}

// shouldRetry reports whether another function of the transaction has to run again, or only
// its settlement has to be recorded. Otherwise it finishes the ticket.
func (b *txBatch) shouldRetry(t *group.Ticket[job], became outcome, cause error) (again bool) {
	r := t.Job.run
	switch {
	case became == outcomeCommitted:
		b.committed(t)
		return false
	case became == outcomeInDoubt && !r.skipped && r.err == nil:
		b.store.queue.Finish(t, fmt.Errorf("%w: %w", onlyonce.ErrUnknown, transact.ErrEnded))
		return false
	}
	return b.again(t, became == outcomeInDoubt, cause)
}

// again prepares a run to be repeated. The error that its function returned stands if it stays:
// otherwise, the function may have failed because of rows that were undone with the transaction.
func (b *txBatch) again(t *group.Ticket[job], stays bool, cause error) bool {
	r := t.Job.run
	switch r.settleOnly = r.err != nil && (stays || r.settleOnly); {
	case r.settleOnly && r.settlement.State == "":
		b.store.queue.Finish(t, nil) // the caller gets the function's error
		return false
	case r.retries >= maxRetries:
		b.store.queue.Finish(t, fmt.Errorf("%w: %w", errTooManyRollbacks, cause))
		return false
	}
	r.retries++
	if !r.settleOnly {
		r.settlement, r.err = onlyonce.Settlement{}, nil
	}
	return true
}
