package pgxstore

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/claim"
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
}

// maxTries bounds how often a step is retried because another caller changed the record.
const maxTries = 200

var errBusy = errors.New("the record changed again and again under the call")

// try reports whether a step is tried for the nth time, counted from 0. All tries but the
// first few come after a pause.
func try(ctx context.Context, n int) bool {
	switch {
	case n == maxTries:
		return false
	case n <= 8:
		return true
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(rand.N(time.Millisecond << min(n-9, 5))):
		return true
	}
}

// busy returns the error after too many tries.
func busy(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return errBusy
}

// claimRecord asks for the right to run a command, in the steps of the package claim.
// known says that there probably is a record.
func claimRecord(ctx context.Context, on writer, k *record.Key, c *onlyonce.Claim, known bool) (onlyonce.Record, error) {
	r, _, ok, err := claim.Run(rows{ctx, on}, k, c, known)
	if !ok && err == nil {
		err = busy(ctx)
	}
	return r, err
}

// rows takes the steps of a claim.
type rows struct {
	ctx context.Context // of one call
	on  writer
}

// Try pauses before most repeats.
func (w rows) Try(n int) bool { return try(w.ctx, n) }

// Find looks the row up.
func (w rows) Find(k *record.Key) (*stored, error) { return w.on.look(w.ctx, k) }

// Create makes a new record, unless there is a row.
func (w rows) Create(k *record.Key, c *onlyonce.Claim) (r onlyonce.Record, given bool, err error) {
	began := time.Now()
	s := &statement{name: "claim", key: k, claim: c}
	if err := w.on.write(w.ctx, s); err != nil || !s.wrote {
		return r, false, err
	}
	r = record.Next(c, nil, s.fence, s.fence)
	if time.Since(began) < record.Slow {
		return r, true, nil
	}
	given, err = w.Raise(k, &r)
	return r, given, err
}

// Raise makes the fence higher than those of deleted records. It reports false if the
// fence may have changed in a call whose response was lost.
func (w rows) Raise(k *record.Key, r *onlyonce.Record) (known bool, err error) {
	hold := server.HoldArgs{Hash: k.Hash[:], Owner: []byte(r.Owner), Fence: r.Fence}
	s := &statement{name: "raise", key: k, into: []any{&r.Fence}, args: hold.List()}
	err = w.on.write(w.ctx, s)
	return err == nil && (s.wrote || !s.repeated), err
}

// Take takes the row over.
func (w rows) Take(k *record.Key, c *onlyonce.Claim, seen *stored) (r onlyonce.Record, given bool, err error) {
	args, err := postgres.Encode.Take(k, c, seen)
	if err != nil {
		return r, false, err
	}
	var fence int64
	s := &statement{name: "take", key: k, into: []any{&fence}, args: args.List()}
	err = w.on.write(w.ctx, s)
	return record.Next(c, seen, fence, fence), err == nil && s.wrote, err
}

// renew makes the hold's lease end a full lease from now, and adds steps.
func renew(ctx context.Context, on writer, h *onlyonce.Hold, lease time.Duration, steps map[string][]byte) error {
	k := record.KeyOf(h.ID)
	hold := server.HoldOf(&k, h)
	if len(steps) == 0 {
		s := &statement{name: "renew", key: &k, args: hold.Renew(lease.Microseconds())}
		if err := on.write(ctx, s); err != nil || s.wrote {
			return err
		}
		return transact.Lost(s.repeated)
	}
	repeated := false
	for n := 0; try(ctx, n); n++ {
		found, err := on.look(ctx, &k)
		if err != nil {
			return err
		}
		if !found.HeldBy(h) {
			return transact.Lost(repeated)
		}
		if found.Damage != nil {
			return found.Damage // writing would lose the steps that are there
		}
		all := make(map[string][]byte, len(found.Steps)+len(steps))
		maps.Copy(all, found.Steps)
		maps.Copy(all, steps)
		after, err := record.EncodeSteps(all)
		if err != nil {
			return err
		}
		s := &statement{name: "step", key: &k, args: hold.Step(lease.Microseconds(), after, found.StepsAs)}
		if err := on.write(ctx, s); err != nil || s.wrote {
			return err
		}
		repeated = repeated || s.repeated
	}
	return busy(ctx)
}

// settle ends an attempt.
func settle(ctx context.Context, on writer, h *onlyonce.Hold, st *onlyonce.Settlement) error {
	k := record.KeyOf(h.ID)
	s := &statement{name: "settle", key: &k, hold: h, settlement: st}
	if st.State == "" {
		s = &statement{name: "release", key: &k, args: server.HoldOf(&k, h).List()}
	}
	if err := on.write(ctx, s); err != nil || s.wrote {
		return err
	}
	found, err := on.look(ctx, &k)
	if err != nil {
		return err
	}
	if found != nil && found.SettledBy(h) && (s.repeated || !found.Expired) {
		return nil // it was settled before: by the first sending, if this was the second
	}
	return transact.Lost(s.repeated)
}

// resolve ends a record that nobody holds, with a new owner and a higher fence.
func resolve(ctx context.Context, on writer, seen *onlyonce.Record, st *onlyonce.Settlement) error {
	k := record.KeyOf(seen.ID)
	for n := 0; try(ctx, n); n++ {
		found, err := on.look(ctx, &k)
		if err == nil {
			err = found.Resolvable(*seen)
		}
		if err != nil {
			return err
		}
		s := &statement{name: "resolve", key: &k}
		if st.State == "" {
			s.name = "remove"
		}
		s.args = postgres.Decision(postgres.Encode.Settled(st), server.SeenAs(&k, found), []byte(record.NewOwner()))
		if err := on.write(ctx, s); err != nil || s.wrote {
			return err
		}
	}
	return busy(ctx)
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
