package server

import (
	"context"
	"maps"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/transact"
)

func (l Session) renew(h onlyonce.Hold, lease time.Duration, steps map[string][]byte) error {
	k := record.KeyOf(h.ID)
	if len(steps) > 0 {
		return l.step(&k, h, lease, steps)
	}
	n, err := l.Change("renew", lease.Microseconds(), k.Hash[:], []byte(h.Owner), h.Fence)
	if n > 0 || err != nil {
		return err
	}
	// A row that the statement found as it was may count as not changed.
	r, err := l.find(&k)
	if err == nil && !r.HeldBy(&h) {
		err = onlyonce.ErrLost
	}
	return err
}

// step adds steps to those that are there.
func (l Session) step(k *record.Key, h onlyonce.Hold, lease time.Duration, steps map[string][]byte) error {
	for n := range maxTurns {
		if n > 0 && !pause(l.Ctx, n) {
			return l.Ctx.Err()
		}
		r, err := l.find(k)
		if err != nil {
			return err
		}
		if !r.HeldBy(&h) {
			return onlyonce.ErrLost
		}
		if r.Damage != nil {
			return r.Damage // the steps that are there would be lost
		}
		all := maps.Clone(r.Steps)
		if all == nil {
			all = make(map[string][]byte, len(steps))
		}
		maps.Copy(all, steps)
		after, err := record.EncodeSteps(all)
		if err != nil {
			return err
		}
		n, err := l.Change("step", lease.Microseconds(), after, k.Hash[:], []byte(h.Owner), h.Fence, r.StepsAs)
		if n > 0 || err != nil {
			return err
		}
	}
	return errContended
}

// SettlementValues returns what a settled record holds, in the order of the
// statements.
func (l Session) SettlementValues(st *onlyonce.Settlement) []any {
	return []any{
		string(st.State), int64(st.Result.Status), st.Final, l.text(st.Result.Ref), l.text(st.Error),
		record.EncodeHeader(st.Result.Header), record.NullBytes(st.Result.Body), record.Keep(st),
	}
}

// end settles or releases, and says whether it did. The token is that of a
// transaction with rows of the caller's; nil: there is none.
func (l Session) end(k *record.Key, h onlyonce.Hold, st *onlyonce.Settlement, token []byte) (bool, error) {
	name, args := "release", []any(nil)
	if st.State != "" {
		name, args = "settle", l.SettlementValues(st)
	}
	if token != nil {
		name, args = name+" with rows", append(args, token)
	}
	n, err := l.Change(name, append(args, k.Hash[:], []byte(h.Owner), h.Fence)...)
	return n > 0, err
}

// settle settles alone; repeated says that it was tried before, and may have been
// done then.
func (l Session) settle(h onlyonce.Hold, st onlyonce.Settlement, repeated bool) error {
	k := record.KeyOf(h.ID)
	done, err := l.end(&k, h, &st, nil)
	if done && l.Tx == nil {
		l.dialect.Settled(&k, h.Fence)
	}
	if done || err != nil {
		return err
	}
	return l.refused(&k, h, repeated)
}

// refused says why nothing was settled: the hold settled before, which is no
// error, or it is not the record's any more. What a repeated settlement finds
// settled by its hold took effect, although it may have expired since.
func (l Session) refused(k *record.Key, h onlyonce.Hold, repeated bool) error {
	r, err := l.find(k)
	if err != nil {
		return err
	}
	if r != nil && r.SettledBy(&h) && (repeated || !r.Expired) {
		return nil
	}
	followed := r == nil || r.Expired || r.Owner != h.Owner && r.Fence > h.Fence
	return transact.Lost(repeated && followed)
}

func (s *Store) Resolve(ctx context.Context, id onlyonce.ID, fence int64, st onlyonce.Settlement) error {
	l, k := s.Session(ctx), record.KeyOf(id)
	for n := range maxTurns {
		if n > 0 && !pause(ctx, n) {
			return ctx.Err()
		}
		r, err := l.find(&k)
		switch {
		case err != nil:
			return err
		case r == nil || r.Expired:
			return onlyonce.ErrNotFound
		case r.Fence != fence:
			return onlyonce.ErrLost
		case r.State == onlyonce.StateProcessing && r.LeaseLeft > 0:
			return onlyonce.ErrInFlight
		}
		if done, err := l.decide(&k, r, &st); done || err != nil {
			return err
		}
	}
	return errContended
}

// decide ends the record that was seen, unless that has changed.
func (l Session) decide(k *record.Key, seen *record.Stored, st *onlyonce.Settlement) (bool, error) {
	name, values := "remove", []any(nil)
	if st.State != "" {
		name, values = "resolve", l.SettlementValues(st)
	}
	n, err := l.Change(name, l.dialect.Decision(values, []byte(record.NewOwner()), k.Hash[:], []byte(seen.Owner), seen.Fence, seen.As)...)
	return n > 0, err
}

// kept is how many microseconds the row of a released command stays.
const kept = int64(time.Hour / time.Microsecond)

// Released makes the values of a settlement that releases those of a row that
// is there for its fence alone.
func Released(values []any) []any {
	if values[0] == "" {
		values[0], values[7] = record.StateReleased, kept
	}
	return values
}
