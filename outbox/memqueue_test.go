package outbox_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce/outbox"
)

const stateLeased = "leased"

// A memQueue is a queue in memory.
type memQueue struct {
	mu       sync.Mutex
	seq      int64
	rows     []*row
	appended chan struct{}
}

type row struct {
	outbox.Entry
	state string
	owner string
	due   time.Time // leased: the lease's end; waiting: not before; published: kept until
}

func newMemQueue() *memQueue { return &memQueue{appended: make(chan struct{}, 1)} }

// A memTx appends when it is committed, but in the place where it was asked to.
type memTx struct {
	queue *memQueue
	rows  []*row
}

func (q *memQueue) begin() *memTx { return &memTx{queue: q} }

func (t *memTx) Append(ctx context.Context, messages ...outbox.Message) error {
	q := t.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range messages {
		m, err := outbox.Prepare(ctx, m)
		if err != nil {
			return err
		}
		q.seq++
		m.CreatedAt = time.Now()
		m.Payload = slices.Clone(m.Payload)
		t.rows = append(t.rows, &row{Entry: outbox.Entry{Message: m, Seq: q.seq}, state: outbox.StateWaiting})
	}
	select {
	case q.appended <- struct{}{}:
	default:
	}
	return nil
}

func (t *memTx) Commit() error {
	t.queue.mu.Lock()
	defer t.queue.mu.Unlock()
	t.queue.rows = append(t.queue.rows, t.rows...)
	slices.SortFunc(t.queue.rows, func(a, b *row) int { return cmp.Compare(a.Seq, b.Seq) })
	return nil
}

func (t *memTx) Rollback() error {
	t.rows = nil
	return nil
}

func (q *memQueue) append(ctx context.Context, messages ...outbox.Message) error {
	t := q.begin()
	return errors.Join(t.Append(ctx, messages...), t.Commit())
}

func (q *memQueue) Wait(ctx context.Context) error {
	select {
	case <-q.appended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (q *memQueue) Lease(_ context.Context, owner string, lease time.Duration, limit int, except ...string) (list []outbox.Entry, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	blocked := make(map[string]bool)
	for _, r := range q.rows {
		if (r.state == stateLeased || r.state == outbox.StateWaiting) && !r.due.After(now) {
			r.state = outbox.StateWaiting
			blocked[r.Key] = blocked[r.Key] || slices.Contains(except, r.Topic)
		} else if r.state != outbox.StatePublished {
			blocked[r.Key] = true
		}
	}
	delete(blocked, "")
	size := 0
	for _, r := range q.rows {
		if len(list) < limit && r.state == outbox.StateWaiting && !r.due.After(now) && !blocked[r.Key] && !slices.Contains(except, r.Topic) {
			if size += len(r.Payload); size > outbox.MaxLeaseBytes && len(list) > 0 {
				break
			}
			r.state, r.owner, r.due = stateLeased, owner, now.Add(lease)
			list = append(list, r.Entry)
		}
	}
	return list, nil
}

func (q *memQueue) Renew(_ context.Context, owner string, lease time.Duration, seqs ...int64) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	err := outbox.ErrLost
	for _, r := range q.rows {
		if r.owner == owner && r.state == stateLeased && slices.Contains(seqs, r.Seq) {
			r.due, err = time.Now().Add(lease), nil
		}
	}
	return err
}

func (q *memQueue) Settle(_ context.Context, owner string, verdicts []outbox.Verdict) (err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, v := range verdicts {
		i := slices.IndexFunc(q.rows, func(r *row) bool { return r.Seq == v.Seq && r.owner == owner })
		if i < 0 {
			err = outbox.ErrLost
			continue
		}
		r := q.rows[i]
		r.state, r.owner, r.due = v.State, "", time.Now().Add(v.After)
		if v.State != outbox.StatePublished {
			r.Attempts, r.Error = v.Attempts, v.Error
		} else if v.After == 0 {
			q.rows = slices.Delete(q.rows, i, i+1)
		}
	}
	return err
}

func (q *memQueue) Lag(context.Context) (lag outbox.Lag, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range q.rows {
		switch r.state {
		case outbox.StateParked:
			lag.Parked++
		case outbox.StatePublished:
		default:
			lag.Waiting++
			lag.Oldest = max(lag.Oldest, time.Since(r.CreatedAt))
		}
	}
	return lag, nil
}

func (q *memQueue) Parked(_ context.Context, after int64, limit int) (list []outbox.Entry, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range q.rows {
		if r.state == outbox.StateParked && r.Seq > after && len(list) < limit {
			list = append(list, r.Entry)
		}
	}
	return list, nil
}

func (q *memQueue) Requeue(_ context.Context, seqs ...int64) (n int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range q.rows {
		if r.state == outbox.StateParked && slices.Contains(seqs, r.Seq) {
			r.state, r.due, r.Attempts, r.Error = outbox.StateWaiting, time.Time{}, 0, ""
			n++
		}
	}
	return n, nil
}

func (q *memQueue) Discard(_ context.Context, seqs ...int64) (int, error) {
	return q.delete(len(seqs), func(r *row) bool {
		return r.state == outbox.StateParked && slices.Contains(seqs, r.Seq)
	}), nil
}

func (q *memQueue) Purge(_ context.Context, limit int) (int, error) {
	return q.delete(limit, func(r *row) bool {
		return r.state == outbox.StatePublished && !r.due.After(time.Now())
	}), nil
}

func (q *memQueue) delete(limit int, which func(*row) bool) (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.rows = slices.DeleteFunc(q.rows, func(r *row) bool {
		if n == limit || !which(r) {
			return false
		}
		n++
		return true
	})
	return n
}

// kept counts the published messages that are still there.
func (q *memQueue) kept() (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range q.rows {
		if r.state == outbox.StatePublished {
			n++
		}
	}
	return n
}
