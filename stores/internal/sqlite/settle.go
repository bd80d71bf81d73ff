package sqlite

import (
	"database/sql/driver"
	"maps"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// A settleOp ends an attempt.
type settleOp struct {
	key        record.Key
	hold       onlyonce.Hold
	settlement onlyonce.Settlement
	args       []driver.NamedValue // of "settle completed", if the settlement is so plain
}

func newSettleOp(h onlyonce.Hold, st onlyonce.Settlement) *settleOp {
	o := &settleOp{key: record.KeyOf(h.ID), hold: h, settlement: st}
	if st.State == onlyonce.StateCompleted && st.Error == "" && !st.Final {
		o.args = engine.Args(int64(st.Result.Status), record.NullText(st.Result.Ref), record.EncodeHeader(st.Result.Header), record.NullBytes(st.Result.Body),
			nil, nil, h.Fence, o.key.Hash[:], []byte(h.Owner))
	}
	return o
}

func (o *settleOp) alone(s engine.Session) (bool, error) {
	if o.settlement.State == "" {
		return false, nil
	}
	return true, o.settle(s, nil)
}

func (o *settleOp) apply(s engine.Session, now *clock) error {
	if o.settlement.State == "" {
		return o.release(s, now)
	}
	if o.args != nil {
		o.args[4].Value, o.args[5].Value = now.now, o.expiresAt(now)
		if n, err := s.Exec("settle completed", o.args); n > 0 || err != nil {
			return err
		}
	}
	return o.settle(s, now)
}

// settle settles by a clock that was read before, or by the clock as it stands
// if now is nil.
func (o *settleOp) settle(s engine.Session, now *clock) error {
	n, err := s.Exec("settle", engine.Args(append(o.values(now), o.key.Hash[:], []byte(o.hold.Owner), o.hold.Fence)...))
	if n > 0 || err != nil {
		return err
	}
	return o.refused(s)
}

// values returns what a settled record holds, in the order of the statements.
func (o *settleOp) values(now *clock) []any {
	st := &o.settlement
	list := []any{
		string(st.State), int64(st.Result.Status), number(st.Final), record.NullText(st.Result.Ref), record.NullText(st.Error),
		record.EncodeHeader(st.Result.Header), record.NullBytes(st.Result.Body), nil, nil, nil,
	}
	if now != nil {
		list[7], list[8] = now.now, o.expiresAt(now)
	} else if st.Keep > 0 {
		list[9] = record.MicrosCeil(st.Keep)
	}
	return list
}

func (o *settleOp) expiresAt(now *clock) any {
	if o.settlement.Keep <= 0 {
		return nil
	}
	return now.now + record.MicrosCeil(o.settlement.Keep)
}

func (o *settleOp) release(s engine.Session, now *clock) error {
	n, err := s.Exec("release", engine.Args(o.key.Hash[:], []byte(o.hold.Owner), o.hold.Fence))
	if err != nil {
		return err
	}
	if n == 0 {
		return o.refused(s)
	}
	return keepFence(s, now, o.hold.Fence)
}

// refused says why nothing was settled: the hold settled before, which is no
// error, or it is not the record's any more.
func (o *settleOp) refused(s engine.Session) error {
	r, err := find(s, &o.key)
	if err != nil {
		return err
	}
	if r != nil && r.SettledBy(&o.hold) && !r.Expired {
		return nil
	}
	return onlyonce.ErrLost
}

func number(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// A renewOp makes a lease last a full lease from now.
type renewOp struct {
	key   record.Key
	hold  onlyonce.Hold
	lease time.Duration
	steps map[string][]byte
}

func (o *renewOp) alone(s engine.Session) (bool, error) {
	if len(o.steps) > 0 {
		return false, nil
	}
	return true, o.renew(s, nil)
}

func (o *renewOp) apply(s engine.Session, now *clock) error {
	if err := o.renew(s, now.now); err != nil || len(o.steps) == 0 {
		return err
	}
	r, err := find(s, &o.key)
	if err != nil {
		return err
	}
	if r.Damage != nil {
		return r.Damage // the steps that are there would be lost
	}
	all := maps.Clone(r.Steps)
	if all == nil {
		all = make(map[string][]byte, len(o.steps))
	}
	maps.Copy(all, o.steps)
	steps, err := record.EncodeSteps(all)
	if err != nil {
		return err
	}
	_, err = s.Exec("step", engine.Args(steps, o.key.Hash[:]))
	return err
}

func (o *renewOp) renew(s engine.Session, now any) error {
	n, err := s.Exec("renew", engine.Args(now, record.MicrosCeil(o.lease), o.key.Hash[:], []byte(o.hold.Owner), o.hold.Fence))
	if n == 0 && err == nil {
		return onlyonce.ErrLost
	}
	return err
}

// A resolveOp ends a record that nobody holds, with a new owner and a higher
// fence.
type resolveOp struct {
	settleOp
}

func (o *resolveOp) alone(engine.Session) (bool, error) { return false, nil }

func (o *resolveOp) apply(s engine.Session, now *clock) error {
	r, err := find(s, &o.key)
	switch {
	case err != nil:
		return err
	case r == nil || r.Expired:
		return onlyonce.ErrNotFound
	case r.Fence != o.hold.Fence:
		return onlyonce.ErrLost
	case r.State == onlyonce.StateProcessing && r.LeaseLeft > 0:
		return onlyonce.ErrInFlight
	}
	fence := now.fence(r.Fence)
	if o.settlement.State == "" {
		if err := keepFence(s, now, fence); err != nil {
			return err
		}
		return remove(s, now, &o.key, r.Fence)
	}
	_, err = s.Exec("resolve", engine.Args(append(o.values(now), []byte(record.NewOwner()), fence, o.key.Hash[:])...))
	return err
}

// A purgeOp deletes at most limit expired records.
type purgeOp struct {
	limit  int
	purged int
}

func (o *purgeOp) alone(engine.Session) (bool, error) { return false, nil }

func (o *purgeOp) apply(s engine.Session, now *clock) error {
	due := engine.Args(now.now, int64(o.limit))
	var highest int64
	err := s.Query("highest due", due, func(v []driver.Value) error {
		r := record.Reader{Values: v}
		highest = r.Int("fence")
		return r.Err
	})
	if err != nil {
		return err
	}
	if highest != 0 {
		if err := keepFence(s, now, highest); err != nil {
			return err
		}
		n, err := s.Exec("purge", due)
		if err != nil {
			return err
		}
		o.purged = int(n)
	}
	return o.purgeLapsed(s, now)
}

// purgeLapsed deletes records whose leases have lapsed and whose keep has passed
// since, as far as the limit allows.
func (o *purgeOp) purgeLapsed(s engine.Session, now *clock) error {
	type row struct {
		hash  []byte
		fence int64
	}
	var lapsed []row
	err := s.Query("lapsed", engine.Args(now.now, int64(o.limit-o.purged)), func(v []driver.Value) error {
		r := record.Reader{Values: v}
		lapsed = append(lapsed, row{r.Bytes("id"), r.Int("fence")})
		return r.Err
	})
	for _, l := range lapsed {
		if err == nil {
			err = keepFence(s, now, l.fence)
		}
		if err == nil {
			_, err = s.Exec("delete", engine.Args(l.hash, l.fence))
		}
	}
	if err == nil {
		o.purged += len(lapsed)
	}
	return err
}
