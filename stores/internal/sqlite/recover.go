package sqlite

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/group"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/transact"
)

// An outcome says what became of a transaction.
type outcome int

const (
	outcomeUnknown outcome = iota
	outcomeCommitted
	outcomeLost
)

var errOften = errors.New("other functions made the database roll the transaction back too often")

// maxLosses is how often a function runs again because of another one.
const maxLosses = 3

// abort ends a transaction that is gone, or must not be committed, because of
// t's function. The others run again, unless a function committed it.
func (b *txBatch) abort(t *group.Ticket[job], cause error) {
	rolledBack := b.tx.Rollback() == nil && !b.lost
	b.store.writer.discard()
	became := outcomeLost
	if !rolledBack {
		became, _ = b.findCommit()
	}
	b.keepFences(append(slices.Clone(b.ran), t))
	if !rolledBack {
		cause = fmt.Errorf("%w: %w", onlyonce.ErrUnknown, cause)
	}
	again := b.failOffender(t, cause)
	for _, other := range b.ran {
		if b.shouldRetry(other, became, cause) {
			again = append(again, other)
		}
	}
	b.store.queue.Back(append(again, b.todo...))
	b.store.queue.Next(lane)
}

// resolveCommit answers everyone of a batch whose commit returned an error: some
// errors come after the commit.
func (b *txBatch) resolveCommit(cause error) {
	b.store.writer.discard()
	became, err := b.findCommit()
	if became != outcomeCommitted {
		b.keepFences(b.ran)
	}
	if became == outcomeUnknown {
		cause = fmt.Errorf("%w: %w: %w", onlyonce.ErrInDoubt, cause, err)
	}
	for _, t := range b.ran {
		if became == outcomeCommitted {
			b.committed(t)
			continue
		}
		t.Job.run.record = onlyonce.Record{}
		b.store.queue.Answer(t, cause)
	}
	b.store.queue.Next(lane)
}

// findCommit looks for what only this transaction can have written. The first
// record that tells tells it of all. Where nobody wrote anything, there is nothing
// to lose.
func (b *txBatch) findCommit() (became outcome, err error) {
	became = outcomeCommitted
	for _, t := range b.ran {
		r := t.Job.run
		if r.idle || r.leaves() {
			continue
		}
		var now transact.Trace
		if err := b.use(func(d *driverSession) (err error) {
			now, err = readTrace(d, &r.key)
			return err
		}); err != nil {
			return outcomeUnknown, err
		}
		became = outcomeUnknown
		c := transact.Commit{Token: b.token, Fence: r.record.Fence, Before: r.token}
		switch err = c.Committed(now); {
		case err == nil:
			return outcomeCommitted, nil
		case errors.Is(err, transact.ErrNotCommitted):
			return outcomeLost, err
		}
	}
	return became, err
}

func readTrace(s engine.Session, k *record.Key) (now transact.Trace, err error) {
	err = s.Query("trace", (&keyArgs{k.Hash[:]}).list(), func(v []driver.Value) (err error) {
		now, err = transact.ReadTrace(v)
		return err
	})
	return now, err
}

// keepFences keeps the fences that were handed out in vain, as far as the
// database can still write.
func (b *txBatch) keepFences(ran []*group.Ticket[job]) {
	highest := int64(0)
	for _, t := range ran {
		highest = max(highest, t.Job.run.record.Fence)
	}
	_ = b.use(func(d *driverSession) error {
		_, err := d.Exec("floor", (&floorArgs{highest}).list())
		return err
	})
}

// failOffender answers the offender, unless what is left to do is to record the error
// that its function returned.
func (b *txBatch) failOffender(t *group.Ticket[job], cause error) (again []*group.Ticket[job]) {
	r := t.Job.run
	if r.err == nil {
		b.store.queue.Answer(t, cause)
		return nil
	}
	if b.shouldRetry(t, outcomeLost, cause) {
		again = append(again, t)
	}
	return again
}

// shouldRetry reports whether another function of the transaction has to run again.
// Otherwise it answers it.
func (b *txBatch) shouldRetry(t *group.Ticket[job], became outcome, cause error) (again bool) {
	r := t.Job.run
	switch {
	case became == outcomeCommitted:
		b.committed(t)
	case became == outcomeUnknown && !r.idle && r.err == nil:
		b.store.queue.Answer(t, fmt.Errorf("%w: %w", onlyonce.ErrUnknown, transact.ErrEnded))
	case r.err != nil && r.settlement.State == "":
		b.store.queue.Answer(t, nil) // the error is its answer
	case r.losses >= maxLosses:
		b.store.queue.Answer(t, fmt.Errorf("%w: %w", errOften, cause))
	default:
		r.losses++
		if r.ended = r.err != nil; !r.ended {
			r.settlement = onlyonce.Settlement{}
		}
		return true
	}
	return false
}
