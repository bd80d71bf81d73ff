package server

import (
	"context"
	"database/sql/driver"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/optimistic"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

func (l Runner) renew(h onlyonce.Hold, lease time.Duration, steps map[string][]byte) error {
	k := record.KeyOf(h.ID)
	if len(steps) > 0 {
		return l.step(&k, h, lease, steps)
	}
	n, err := l.Change("renew", HoldOf(&k, &h).Renew(lease.Microseconds())...)
	if n > 0 || err != nil {
		return err
	}
	// MySQL may count a row as not changed that the statement left as it was.
	r, err := l.find(&k)
	if err == nil && !r.HeldBy(&h) {
		err = onlyonce.ErrLost
	}
	return err
}

// step adds steps to those that are there.
func (l Runner) step(k *record.Key, h onlyonce.Hold, lease time.Duration, steps map[string][]byte) error {
	return optimistic.AddSteps(rows{l}, k, &h, steps, func(seen *record.Stored, all any) (bool, error) {
		n, err := l.Change("step", HoldOf(k, &h).Step(lease.Microseconds(), all, seen.StepsAs)...)
		return n > 0, err
	})
}

// end settles or releases, and reports whether it did. token is that of a transaction with
// rows of the caller's; nil: there is none.
func (l Runner) end(k *record.Key, h onlyonce.Hold, st *onlyonce.Settlement, token []byte) (bool, error) {
	hold := HoldOf(k, &h)
	var name string
	var args []any
	switch release := st.State == ""; {
	case release && token == nil:
		name, args = "release", hold.List()
	case release:
		name, args = "release with rows", hold.ReleaseWithRows(token)
	case token == nil:
		name, args = "settle", l.Encode.Settled(st).Settle(hold)
	default:
		name, args = "settle with rows", l.Encode.Settled(st).SettleWithRows(token, hold)
	}
	n, err := l.Change(name, args...)
	return n > 0, err
}

// settle settles a command in one statement. repeated says that an earlier try may have
// settled it.
func (l Runner) settle(h onlyonce.Hold, st onlyonce.Settlement, repeated bool) error {
	k := record.KeyOf(h.ID)
	done, err := l.end(&k, h, &st, nil)
	if done && l.Tx == nil {
		l.dialect.Settled(&k, h.Fence)
	}
	if done || err != nil {
		return err
	}
	return l.explainUnsettled(&k, h, repeated)
}

// explainUnsettled returns why nothing was settled: nil if the hold had settled the record
// before, otherwise an error. If a repeated settlement finds a record that its hold has
// settled, it took effect, although the record may have expired since.
func (l Runner) explainUnsettled(k *record.Key, h onlyonce.Hold, repeated bool) error {
	r, err := l.find(k)
	if err != nil {
		return err
	}
	if r.SettledBy(&h, repeated) {
		return nil
	}
	followed := r == nil || r.Expired || r.Owner != h.Owner && r.Fence > h.Fence
	return record.Lost(repeated && followed)
}

func (s *Store) Resolve(ctx context.Context, seen onlyonce.Record, st onlyonce.Settlement, d *onlyonce.Decision) error {
	l, k := s.Runner(ctx), record.KeyOf(seen.ID)
	name := "resolve"
	if st.State == "" {
		name = "remove"
	}
	return optimistic.Resolve(rows{l}, &k, &seen, &st, func(found *record.Stored) (bool, error) {
		args := l.dialect.Decision(l.Encode.Settled(&st), SeenAs(&k, found), []byte(record.NewOwner()))
		var n int64
		var err error
		if d == nil {
			n, err = l.Change(name, args...)
		} else {
			n, err = l.dialect.Audited(l, name, args, l.Encode.Audit(&k, found, &st, d))
		}
		return n > 0, err
	})
}

func (s *Store) AuditTrail(ctx context.Context, id onlyonce.ID) (entries []onlyonce.AuditEntry, err error) {
	k := record.KeyOf(id)
	err = s.Runner(ctx).Query("audit trail", func(v []driver.Value) error {
		e, err := record.ReadAudit(&record.Reader{Values: v}, id, s.dialect.DecodeText)
		entries = append(entries, e)
		return err
	}, k.Hash[:])
	return entries, err
}
