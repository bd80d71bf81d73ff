package pgxstore

import (
	"cmp"
	"context"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/optimistic"
	"github.com/onlyonce-go/onlyonce/stores/internal/postgres"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/server"
	"github.com/onlyonce-go/onlyonce/stores/internal/transact"
)

// rows are the rows of the store, or of a transaction of the caller's.
type rows struct {
	ctx context.Context // of one call
	on  writer
}

// maxTries bounds how often a call is retried because another one changed the record, and
// quickTries how often without a pause.
const (
	maxTries   = 200
	quickTries = 9
)

// retry waits before most retries. The error is the context's, or optimistic.ErrContended if
// a call may not be retried for the nth time.
func retry(ctx context.Context, n int) error {
	switch {
	case n < quickTries:
		return nil
	case n < maxTries && transact.Pause(ctx, time.Millisecond<<min(n-quickTries, 5)):
		return nil
	}
	return cmp.Or(ctx.Err(), optimistic.ErrContended)
}

// Retry waits before most retries.
func (w rows) Retry(n int) error { return retry(w.ctx, n) }

// Create makes a new record, unless there is a row.
func (w rows) Create(k *record.Key, c *onlyonce.Claim) (r onlyonce.Record, granted bool, err error) {
	began := time.Now()
	s := &statement{query: claimQuery, key: k, claim: c}
	if err := w.on.write(w.ctx, s); err != nil || !s.wrote {
		return r, false, err
	}
	r = record.Next(c, nil, s.fence, s.fence)
	if time.Since(began) < record.Slow {
		return r, true, nil
	}
	granted, err = w.Raise(k, &r)
	return r, granted, err
}

// Find looks the row up.
func (w rows) Find(k *record.Key) (*stored, error) { return w.on.look(w.ctx, k) }

// Take takes the row over.
func (w rows) Take(k *record.Key, c *onlyonce.Claim, seen *stored) (r onlyonce.Record, granted bool, err error) {
	args, err := postgres.Encode.Take(k, c, seen)
	if err != nil {
		return r, false, err
	}
	var fence int64
	s := &statement{query: takeQuery, key: k, into: []any{&fence}, args: args.List()}
	if err := w.on.write(w.ctx, s); err != nil {
		return r, false, err
	}
	return record.Next(c, seen, fence, fence), s.wrote, nil
}

// Survives returns once what was found survives a failover.
func (w rows) Survives(k *record.Key, found *stored) (again bool, err error) {
	return w.on.survives(w.ctx, k, found)
}

// Raise makes the fence higher than those of deleted records. It reports false if the
// fence may have changed in a call whose response was lost.
func (w rows) Raise(k *record.Key, r *onlyonce.Record) (known bool, err error) {
	hold := server.HoldArgs{Hash: k.Hash[:], Owner: []byte(r.Owner), Fence: r.Fence}
	var fence int64
	s := &statement{query: raiseQuery, key: k, into: []any{&fence}, args: hold.List()}
	if err := w.on.write(w.ctx, s); err != nil {
		return false, err
	}
	if s.wrote {
		r.Fence = fence
	}
	return s.wrote || !s.repeated, nil
}
