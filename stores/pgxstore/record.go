package pgxstore

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/optimistic"
	"github.com/onlyonce-go/onlyonce/stores/internal/postgres"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/server"
	"github.com/onlyonce-go/onlyonce/stores/internal/transact"
)

// A writer writes statements and looks records up: together with other calls, or in a
// transaction of the caller's.
type writer interface {
	write(context.Context, *statement) error
	look(context.Context, *record.Key) (*stored, error)
	flushed(ctx context.Context, k *record.Key, found *stored) (again bool, err error)
}

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

// AwaitDurable returns once the record that was found survives a failover.
func (w rows) AwaitDurable(k *record.Key, found *stored) (again bool, err error) {
	return w.on.flushed(w.ctx, k, found)
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

// claimRecord asks for the right to run a command. known says that there probably is a
// record. created reports whether it made a row, even if there is an error.
func claimRecord(ctx context.Context, on writer, k *record.Key, c *onlyonce.Claim, known bool) (r onlyonce.Record, created bool, err error) {
	got, err := optimistic.Claim(rows{ctx, on}, k, c, known)
	return got.Record, got.Created, err
}

// renew makes the hold's lease end a full lease from now, and adds steps.
func renew(ctx context.Context, on writer, h *onlyonce.Hold, lease time.Duration, steps map[string][]byte) error {
	k := record.KeyOf(h.ID)
	hold := server.HoldOf(&k, h)
	if len(steps) == 0 {
		s := &statement{query: renewQuery, key: &k, args: hold.Renew(lease.Microseconds())}
		if err := on.write(ctx, s); err != nil || s.wrote {
			return err
		}
		return record.Lost(s.repeated)
	}
	repeated := false
	err := optimistic.AddSteps(rows{ctx, on}, &k, h, steps, func(seen *stored, all any) (bool, error) {
		s := &statement{query: stepQuery, key: &k, args: hold.Step(lease.Microseconds(), all, seen.StepsAs)}
		if err := on.write(ctx, s); err != nil {
			return false, err
		}
		repeated = repeated || s.repeated
		return s.wrote, nil
	})
	if errors.Is(err, onlyonce.ErrLost) {
		return record.Lost(repeated)
	}
	return err
}

// settle ends an attempt.
func settle(ctx context.Context, on writer, h *onlyonce.Hold, st *onlyonce.Settlement) error {
	k := record.KeyOf(h.ID)
	s := &statement{query: settleQuery, key: &k, hold: h, settlement: st}
	if st.State == "" {
		s = &statement{query: releaseQuery, key: &k, args: server.HoldOf(&k, h).List()}
	}
	if err := on.write(ctx, s); err != nil || s.wrote {
		return err
	}
	found, err := on.look(ctx, &k)
	if err != nil {
		return err
	}
	if found.SettledBy(h, s.repeated) {
		return nil // it was settled before: by the first sending, if this was the second
	}
	return record.Lost(s.repeated)
}

// resolve ends a record that nobody holds, with a new owner and a higher fence.
// Unless d is nil, it adds an entry to the audit trail.
func resolve(ctx context.Context, on writer, seen *onlyonce.Record, st *onlyonce.Settlement, d *onlyonce.Decision) error {
	k := record.KeyOf(seen.ID)
	q := resolveQuery
	switch remove := st.State == ""; {
	case remove && d == nil:
		q = removeQuery
	case remove:
		q = removeAndAuditQuery
	case d != nil:
		q = resolveAndAuditQuery
	}
	return optimistic.Resolve(rows{ctx, on}, &k, seen, st, func(found *stored) (bool, error) {
		s := &statement{query: q, key: &k, args: postgres.Decision(postgres.Encode.Settled(st), server.SeenAs(&k, found), []byte(record.NewOwner()))}
		if d != nil {
			s.args = append(s.args, postgres.Encode.Audit(&k, found, st, d).List()...)
		}
		if err := on.write(ctx, s); err != nil {
			return false, err
		}
		return s.wrote, nil
	})
}

// lookup returns the record of an ID, or onlyonce.ErrNotFound.
func lookup(ctx context.Context, on writer, id onlyonce.ID) (onlyonce.Record, error) {
	k := record.KeyOf(id)
	found, err := on.look(ctx, &k)
	if err != nil {
		return onlyonce.Record{}, err
	}
	return found.Found()
}
