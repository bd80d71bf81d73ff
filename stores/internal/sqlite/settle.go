package sqlite

import (
	"database/sql/driver"
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
	args       completedList // of "settle completed"; nil if the settlement has more than that statement writes
}

func newSettleOp(h onlyonce.Hold, st onlyonce.Settlement) *settleOp {
	o := &settleOp{key: record.KeyOf(h.ID), hold: h, settlement: st}
	if st.State == onlyonce.StateCompleted && st.Error == "" && !st.Final {
		args := completedArgs{
			status: int64(st.Result.Status), ref: record.NullText(st.Result.Ref),
			header: record.EncodeHeader(&st.Result), body: record.NullBytes(st.Result.Body), hold: o.holdArgs(),
		}
		o.args = args.list()
	}
	return o
}

func (o *settleOp) trySingleStatement(s engine.Runner) (bool, error) {
	if o.settlement.State == "" {
		return false, nil
	}
	return true, o.settle(s, nil)
}

func (o *settleOp) apply(s engine.Runner, now *clock) error {
	if o.settlement.State == "" {
		return o.release(s, now)
	}
	if o.args != nil {
		if n, err := s.Exec("settle completed", o.args.at(now.now, o.expiresAt(now))); n > 0 || err != nil {
			return err
		}
	}
	return o.settle(s, now)
}

// settle settles at the time of a clock that was read before, or at the statement's own
// time if now is nil.
func (o *settleOp) settle(s engine.Runner, now *clock) error {
	hold := o.holdArgs()
	n, err := s.Exec("settle", o.settledArgs(now).settle(&hold))
	if n > 0 || err != nil {
		return err
	}
	return o.explainUnsettled(s)
}

func (o *settleOp) holdArgs() holdArgs {
	return holdArgs{id: o.key.Hash[:], owner: []byte(o.hold.Owner), fence: o.hold.Fence}
}

// settledArgs returns the arguments of statements that settle a record.
func (o *settleOp) settledArgs(now *clock) *settledArgs {
	st := &o.settlement
	a := &settledArgs{
		state: string(st.State), status: int64(st.Result.Status), final: number(st.Final), ref: record.NullText(st.Result.Ref), error: record.NullText(st.Error),
		header: record.EncodeHeader(&st.Result), body: record.NullBytes(st.Result.Body),
	}
	if now != nil {
		a.settledAt, a.expiresAt = now.now, o.expiresAt(now)
	} else if st.Keep > 0 {
		a.keep = record.MicrosCeil(st.Keep)
	}
	return a
}

func (o *settleOp) expiresAt(now *clock) any {
	if o.settlement.Keep <= 0 {
		return nil
	}
	return now.now + record.MicrosCeil(o.settlement.Keep)
}

func (o *settleOp) release(s engine.Runner, now *clock) error {
	hold := o.holdArgs()
	n, err := s.Exec("release", hold.release())
	if err != nil {
		return err
	}
	if n == 0 {
		return o.explainUnsettled(s)
	}
	return keepFence(s, now, o.hold.Fence)
}

// explainUnsettled returns why nothing was settled: nil if the hold had settled the record
// before, otherwise an error.
func (o *settleOp) explainUnsettled(s engine.Runner) error {
	r, err := find(s, &o.key)
	if err != nil {
		return err
	}
	if r.SettledBy(&o.hold, false) {
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

// A renewOp makes a lease end one full lease from now.
type renewOp struct {
	key   record.Key
	hold  onlyonce.Hold
	lease time.Duration
	steps map[string][]byte
}

func (o *renewOp) trySingleStatement(s engine.Runner) (bool, error) {
	if len(o.steps) > 0 {
		return false, nil
	}
	return true, o.renew(s, nil)
}

func (o *renewOp) apply(s engine.Runner, now *clock) error {
	if err := o.renew(s, now.now); err != nil || len(o.steps) == 0 {
		return err
	}
	r, err := find(s, &o.key)
	if err != nil {
		return err
	}
	steps, err := r.WithSteps(o.steps)
	if err != nil {
		return err
	}
	_, err = s.Exec("step", (&keyArgs{o.key.Hash[:]}).step(steps))
	return err
}

func (o *renewOp) renew(s engine.Runner, now any) error {
	hold := holdArgs{id: o.key.Hash[:], owner: []byte(o.hold.Owner), fence: o.hold.Fence}
	n, err := s.Exec("renew", hold.renew(now, record.MicrosCeil(o.lease)))
	if n == 0 && err == nil {
		return onlyonce.ErrLost
	}
	return err
}

// A resolveOp ends a record that is not held, with a new owner and a higher
// fence.
type resolveOp struct {
	settleOp
	seen     onlyonce.Record    // by the person
	decision *onlyonce.Decision // is written to the audit trail; nil: nothing is
}

func (o *resolveOp) trySingleStatement(engine.Runner) (bool, error) { return false, nil }

func (o *resolveOp) apply(s engine.Runner, now *clock) error {
	return whole(s, func() error { return o.resolve(s, now) })
}

func (o *resolveOp) resolve(s engine.Runner, now *clock) error {
	r, err := find(s, &o.key)
	if err == nil {
		err = r.Resolvable(o.seen, o.settlement)
	}
	if err != nil {
		return err
	}
	if o.decision != nil {
		if _, err := s.Exec("audit", o.auditArgs(r).list()); err != nil {
			return err
		}
	}
	fence := now.fence(r.Fence)
	if o.settlement.State == "" {
		if err := keepFence(s, now, fence); err != nil {
			return err
		}
		return remove(s, now, &o.key, r.Fence)
	}
	_, err = s.Exec("resolve", o.settledArgs(now).resolve(r.UnreadableFingerprint, r.UnreadableSteps, []byte(record.NewOwner()), fence, o.key.Hash[:]))
	return err
}

func (o *resolveOp) auditArgs(was *record.Stored) *auditArgs {
	return &auditArgs{
		id: o.key.Hash[:], tenant: o.key.ID.Tenant, operation: o.key.ID.Operation, key: o.key.ID.Key, actor: o.decision.Actor, reason: o.decision.Reason,
		before: record.EncodeBefore(&was.Record), after: record.EncodeAfter(&o.settlement),
	}
}

// A purgeOp deletes at most limit expired records, and results that expire before their
// records.
type purgeOp struct {
	limit  int
	purged int
}

func (o *purgeOp) trySingleStatement(engine.Runner) (bool, error) { return false, nil }

func (o *purgeOp) apply(s engine.Runner, now *clock) error {
	due := (&dueArgs{now: now.now, limit: int64(o.limit)}).list()
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
	n, err := s.Exec("forget", (&dueArgs{now: now.now, limit: int64(o.limit - o.purged)}).list())
	if err != nil {
		return err
	}
	o.purged += int(n)
	return o.purgeLapsed(s, now)
}

// purgeLapsed deletes records whose leases have lapsed and whose keep has passed
// since, as far as the limit allows.
func (o *purgeOp) purgeLapsed(s engine.Runner, now *clock) error {
	type row struct {
		hash  []byte
		fence int64
	}
	var lapsed []row
	err := s.Query("lapsed", (&dueArgs{now: now.now, limit: int64(o.limit - o.purged)}).list(), func(v []driver.Value) error {
		r := record.Reader{Values: v}
		lapsed = append(lapsed, row{r.Bytes("id"), r.Int("fence")})
		return r.Err
	})
	for _, l := range lapsed {
		if err == nil {
			err = keepFence(s, now, l.fence)
		}
		if err == nil {
			_, err = s.Exec("delete", (&keyArgs{l.hash}).delete(l.fence))
		}
	}
	if err == nil {
		o.purged += len(lapsed)
	}
	return err
}
