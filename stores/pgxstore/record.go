package pgxstore

import (
	"context"
	"errors"
	"iter"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/postgres"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/server"
	"github.com/onlyonce-go/onlyonce/stores/internal/transact"
)

// A writer does what the store does to records: together with others, or in a
// transaction of the caller's.
type writer interface {
	write(context.Context, *statement) error
	look(context.Context, *record.Key) (*stored, error)
}

// maxTries bounds how often a step is retried because another caller changed the record.
const maxTries = 200

var errBusy = errors.New("the record changed again and again under the call")

// retries counts the tries of a step. All but the first few come after a pause.
func retries(ctx context.Context) iter.Seq[int] {
	return func(yield func(int) bool) {
		for n := 0; n < maxTries && yield(n); n++ {
			if n < 8 {
				continue
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(rand.N(time.Millisecond << min(n-8, 5))):
			}
		}
	}
}

// busy is the error after too many tries.
func busy(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return errBusy
}

// claim asks for the right to run a command.
func claim(ctx context.Context, on writer, k *record.Key, c *onlyonce.Claim, seen bool) (onlyonce.Record, error) {
	for range retries(ctx) {
		if !seen {
			r, given, err := create(ctx, on, k, c)
			if given || err != nil {
				return r, err
			}
		}
		seen = false
		found, err := on.look(ctx, k)
		switch {
		case err != nil:
			return onlyonce.Record{}, err
		case found == nil:
			continue
		case found.HeldBy(&onlyonce.Hold{Owner: c.Owner, Fence: found.Fence}):
			// By a call whose answer was lost, and which may have been slow.
			if given, err := aboveFloor(ctx, on, k, &found.Record); given || err != nil {
				return found.Record, err
			}
			continue
		case found.Answers(c):
			return found.Record, nil
		}
		r, given, err := take(ctx, on, k, c, found)
		if given || err != nil {
			return r, err
		}
	}
	return onlyonce.Record{}, busy(ctx)
}

// create makes a new record, unless there is a row.
func create(ctx context.Context, on writer, k *record.Key, c *onlyonce.Claim) (r onlyonce.Record, given bool, err error) {
	began := time.Now()
	s := &statement{name: "claim", key: k, claim: c}
	if err := on.write(ctx, s); err != nil || !s.wrote {
		return r, false, err
	}
	r = record.Next(c, nil, s.fence, s.fence)
	if time.Since(began) < record.Slow {
		return r, true, nil
	}
	given, err = aboveFloor(ctx, on, k, &r)
	return r, given, err
}

// aboveFloor makes the fence of a hold that was given to a new command higher than
// those of deleted records. It reports false if the fence may have become another
// without an answer that says which.
func aboveFloor(ctx context.Context, on writer, k *record.Key, r *onlyonce.Record) (known bool, err error) {
	s := &statement{name: "raise", key: k, into: []any{&r.Fence}, args: server.HoldArgs{Hash: k.Hash[:], Owner: []byte(r.Owner), Fence: r.Fence}.List()}
	err = on.write(ctx, s)
	return err == nil && (s.wrote || !s.repeated), err
}

// take gives the claim a record that is there.
func take(ctx context.Context, on writer, k *record.Key, c *onlyonce.Claim, was *stored) (r onlyonce.Record, given bool, err error) {
	args, err := postgres.Encode.Take(k, c, was)
	if err != nil {
		return r, false, err
	}
	var fence int64
	s := &statement{name: "take", key: k, into: []any{&fence}, args: args.List()}
	err = on.write(ctx, s)
	return record.Next(c, was, fence, fence), err == nil && s.wrote, err
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
	for range retries(ctx) {
		found, err := on.look(ctx, &k)
		if err != nil {
			return err
		}
		if !found.HeldBy(h) {
			return transact.Lost(repeated)
		}
		if found.Damage != nil {
			return found.Damage // the steps that are there would be lost
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
		return nil // it was settled before, by what was sent first if this was sent again
	}
	return transact.Lost(s.repeated)
}

// resolve ends a record that nobody holds, with a new owner and a higher fence.
func resolve(ctx context.Context, on writer, seen *onlyonce.Record, st *onlyonce.Settlement) error {
	k := record.KeyOf(seen.ID)
	for range retries(ctx) {
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
