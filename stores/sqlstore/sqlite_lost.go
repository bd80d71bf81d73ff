package sqlstore

import (
	"errors"

	"github.com/onlyonce-go/onlyonce"
)

// lose ends a transaction that is gone, or must not be committed, because of
// t's function. The others run again.
func (b *txBatch) lose(t *ticket[job], err error) {
	rolledBack := b.tx.Rollback() == nil
	b.store.writer.discard()
	again := b.blame(t, err)
	for _, other := range b.ran {
		if b.store.survives(other, rolledBack, b.now) {
			again = append(again, other)
		}
	}
	b.store.queue.back(append(again, b.todo...))
	b.store.queue.next()
}

// blame answers the culprit, unless what is left to do is to record the error
// that its function returned.
func (b *txBatch) blame(t *ticket[job], err error) (again []*ticket[job]) {
	r := t.job.run
	switch {
	case r.err == nil:
		b.store.queue.answer(t, err)
	case r.settlement.State == "":
		b.store.queue.answer(t, nil)
	case r.losses >= maxLosses:
		b.store.queue.answer(t, errOften)
	default:
		r.losses++
		r.ended = true
		return append(again, t)
	}
	return nil
}

// survives answers one whose function ran in a transaction that was lost, or
// says that it has to go again. A function may have committed the transaction
// instead of losing it.
func (s *Store) survives(t *ticket[job], rolledBack bool, now *clock) (again bool) {
	r := t.job.run
	if !rolledBack {
		switch done, err := s.committed(r); {
		case err != nil:
			s.queue.answer(t, err)
			return false
		case done:
			r.settled(now)
			s.queue.answer(t, nil)
			return false
		case r.settlement.State == "" && r.err == nil:
			s.queue.answer(t, errEnded)
			return false
		}
	}
	switch {
	case r.err != nil && r.settlement.State == "":
		s.queue.answer(t, nil)
		return false
	case r.losses >= maxLosses:
		s.queue.answer(t, errOften)
		return false
	}
	r.losses++
	r.ended = r.err != nil
	return true
}

// committed looks whether the run's record is there as the run left it.
func (s *Store) committed(r *run) (done bool, err error) {
	err = s.writer.use(func(d *direct) error {
		found, err := find(d, &r.key)
		done = found != nil && r.settlement.State != "" && found.State == r.settlement.State &&
			found.Owner == r.record.Owner && found.Fence == r.record.Fence
		return err
	})
	return done, err
}

// doubt answers everyone of a batch whose commit returned an error: some
// errors come after the commit.
func (b *txBatch) doubt(err error) {
	b.store.writer.discard()
	for _, t := range b.ran {
		r := t.job.run
		done, unread := b.store.committed(r)
		if done {
			r.settled(b.now)
			b.store.queue.answer(t, nil)
			continue
		}
		r.record = onlyonce.Record{}
		b.store.queue.answer(t, errors.Join(err, unread))
	}
	b.store.queue.next()
}
