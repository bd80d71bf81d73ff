package sqlite

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/group"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// A job is an op, or a function that runs in a transaction.
type job struct {
	op  op
	run *funcRun
}

// do queues the op, which is written together with others.
func (s *Store) do(ctx context.Context, o op) error {
	if err := s.checkReentry(ctx); err != nil {
		return err
	}
	return s.queue.Do(ctx, job{op: o})
}

// write writes a batch: the ops in one transaction, then the functions in another, so that
// only callers with functions wait for functions.
func (s *Store) write(_ int, batch []*group.Ticket[job]) (then func()) {
	if err := s.file.check(); err != nil {
		for _, t := range batch {
			s.queue.Finish(t, err)
		}
		return nil
	}
	ops := make([]*group.Ticket[job], 0, len(batch))
	var runs []*group.Ticket[job]
	for _, t := range batch {
		if t.Job.run != nil {
			runs = append(runs, t)
		} else {
			ops = append(ops, t)
		}
	}
	if len(ops) > 0 {
		s.writeOps(ops)
	}
	if len(runs) == 0 {
		return nil
	}
	return func() { s.startRuns(runs) }
}

func (s *Store) writeOps(ops []*group.Ticket[job]) {
	finished := false
	defer func() {
		if !finished {
			s.writer.discard()
		}
	}()
	err := s.writer.use(func(d *driverRunner) error {
		if len(ops) == 1 && s.unkept.Load() == 0 {
			done, err := ops[0].Job.op.trySingleStatement(d)
			if done || err != nil {
				s.queue.Finish(ops[0], err)
				return nil
			}
		}
		return s.together(d, ops)
	})
	if finished = err == nil; finished {
		return
	}
	for _, t := range ops {
		s.queue.Finish(t, err)
	}
}

// maxOffenders is how many ops may make the database roll a batch back before all of the
// batch fails.
const maxOffenders = 8

// together does the ops in one transaction. Its error is that of every op.
func (s *Store) together(d *driverRunner, ops []*group.Ticket[job]) error {
	for range maxOffenders {
		offender, err := s.attempt(d, ops)
		if offender < 0 {
			return err
		}
		s.queue.Finish(ops[offender], err)
		ops = slices.Delete(ops, offender, offender+1)
		if len(ops) == 0 {
			return nil
		}
	}
	return errors.New("too many errors of the database in one batch")
}

// attempt does the ops in one transaction and finishes their tickets. If one op makes the
// database roll the transaction back, attempt returns it as the offender and finishes no
// ticket.
func (s *Store) attempt(d *driverRunner, ops []*group.Ticket[job]) (offender int, err error) {
	if _, err := d.Exec("begin", nil); err != nil {
		return -1, err
	}
	now, err := s.startClock(d)
	if err != nil {
		return -1, err
	}
	errs := make([]error, len(ops))
	for i, t := range ops {
		errs[i] = t.Job.op.apply(d, now)
		if errs[i] != nil && !isOwn(errs[i]) && !txStillOpen(d) {
			return i, errs[i]
		}
	}
	if _, err := d.Exec("commit", nil); err != nil {
		return -1, err
	}
	s.unkept.Store(0)
	for i, t := range ops {
		s.queue.Finish(t, errs[i])
	}
	return -1, nil
}

// whole does an op of several statements, and undoes all of them if one fails. The other ops of
// the transaction are committed all the same.
func whole(s engine.Runner, op func() error) error {
	if _, err := s.Exec("savepoint", nil); err != nil {
		return err
	}
	err := op()
	if err != nil {
		if _, undone := s.Exec("undo", nil); undone != nil {
			return err // the database has rolled back the transaction
		}
	}
	_, kept := s.Exec("keep", nil)
	return cmp.Or(err, kept)
}

// isOwn reports whether an error is the store's own, and not the database's.
func isOwn(err error) bool {
	for _, ours := range []error{onlyonce.ErrLost, onlyonce.ErrNotFound, onlyonce.ErrInFlight, record.ErrCollision, record.ErrFence} {
		if errors.Is(err, ours) {
			return true
		}
	}
	return false
}

// txStillOpen reports whether the transaction is still open after an error. Some errors make
// SQLite roll it back, and each later statement would commit by itself.
func txStillOpen(d *driverRunner) bool {
	if _, err := d.Exec("probe", nil); err != nil {
		return true
	}
	_, _ = d.Exec("rollback", nil)
	return false
}
