package sqlite

import (
	"context"
	"errors"
	"slices"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/group"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// A job is an op, or a function that runs in a transaction.
type job struct {
	op  op
	run *funcRun
}

// do has the op written together with others.
func (s *Store) do(ctx context.Context, o op) error {
	if err := s.checkContext(ctx); err != nil {
		return err
	}
	return s.queue.Do(ctx, job{op: o})
}

// write writes a batch: what is short in one transaction, then the functions
// in another, so that only callers with functions wait for functions.
func (s *Store) write(_ int, batch []*group.Ticket[job]) (then func()) {
	if err := s.file.check(); err != nil {
		for _, t := range batch {
			s.queue.Answer(t, err)
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
	whole := false
	defer func() {
		if !whole {
			s.writer.discard()
		}
	}()
	err := s.writer.use(func(d *driverSession) error {
		if len(ops) == 1 {
			done, err := ops[0].Job.op.alone(d)
			if done || err != nil {
				s.queue.Answer(ops[0], err)
				return nil
			}
		}
		return s.together(d, ops)
	})
	if whole = err == nil; whole {
		return
	}
	for _, t := range ops {
		s.queue.Answer(t, err)
	}
}

// maxCulprits is how many ops may break the transaction of a batch before all
// of it fails.
const maxCulprits = 8

// together does the ops in one transaction. An error is that of the whole.
func (s *Store) together(d *driverSession, ops []*group.Ticket[job]) error {
	for range maxCulprits {
		culprit, err := s.attempt(d, ops)
		if culprit < 0 {
			return err
		}
		s.queue.Answer(ops[culprit], err)
		ops = slices.Delete(ops, culprit, culprit+1)
		if len(ops) == 0 {
			return nil
		}
	}
	return errors.New("too many errors of the database in one batch")
}

// attempt does the ops in one transaction and answers them. If one of them
// made the database roll all of it back, it is the culprit, and the others are
// not answered.
func (s *Store) attempt(d *driverSession, ops []*group.Ticket[job]) (culprit int, err error) {
	if _, err := d.Exec("begin", nil); err != nil {
		return -1, err
	}
	now, err := readClock(d)
	if err != nil {
		return -1, err
	}
	errs := make([]error, len(ops))
	for i, t := range ops {
		errs[i] = t.Job.op.apply(d, now)
		if errs[i] != nil && !verdict(errs[i]) && !txStillOpen(d) {
			return i, errs[i]
		}
	}
	if _, err := d.Exec("commit", nil); err != nil {
		return -1, err
	}
	for i, t := range ops {
		s.queue.Answer(t, errs[i])
	}
	return -1, nil
}

// verdict tells what the store says from what the database says.
func verdict(err error) bool {
	for _, ours := range []error{onlyonce.ErrLost, onlyonce.ErrNotFound, onlyonce.ErrInFlight, record.ErrCollision, record.ErrFence} {
		if errors.Is(err, ours) {
			return true
		}
	}
	return false
}

// txStillOpen reports whether the transaction is still open after an error: some make
// SQLite roll it back, and what comes after would stand alone.
func txStillOpen(d *driverSession) bool {
	if _, err := d.Exec("probe", nil); err != nil {
		return true
	}
	_, _ = d.Exec("rollback", nil)
	return false
}
