package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/transact"
)

// A funcRun runs a caller's function in a transaction that it shares with others.
type funcRun struct {
	doing string // the operation that the errors name
	ctx   context.Context
	fn    engine.TxFunc
	key   record.Key
	claim *onlyonce.Claim // by RunTx
	hold  *onlyonce.Hold  // by SettleTx

	batch  *txBatch
	before *record.Stored  // the record that was there
	token  []byte          // of the transaction that settled it
	record onlyonce.Record // as it was claimed, then as it was settled

	skipped    bool // fn does not run: its caller gets record, or the error rejected
	rejected   error
	settlement onlyonce.Settlement
	began      time.Time // when fn was called
	settledAt  int64     // when write settled the record, by the store's clock
	err        error     // what fn returned
	panicked   bool
	settleOnly bool // fn returned an error that stands although the transaction was rolled back: fn does not run again, but its settlement is recorded
	retries    int  // how often fn ran again because its transaction was rolled back
	alone      bool // fn runs in a transaction of its own, because SQLite rejected one that it shared
}

// RunTx runs fn in a transaction that it shares with other waiting functions. Each has its
// own savepoint.
func (s *Store) RunTx(ctx context.Context, doing string, c onlyonce.Claim, fn engine.TxFunc) (onlyonce.Record, error) {
	k := record.KeyOf(c.ID)
	if err := s.checkReentry(ctx); err != nil {
		return onlyonce.Record{}, fmt.Errorf("%s: %w", doing, err)
	}
	if r := s.seen(ctx, &k); r.StandsAgainst(&c) {
		return r.Record, nil
	}
	if r, first := s.runningTx.Enter(&k, &c); !first {
		return r, nil
	}
	defer s.runningTx.Exit(&k)
	r := &funcRun{doing: doing, ctx: s.guardReentry(ctx), fn: fn, key: k, claim: &c}
	err := s.queue.Do(ctx, job{run: r})
	if err == nil {
		s.seenCache.Add(&k.Hash)
	}
	return r.record, transact.Result(r.doing, r.err, err)
}

func (s *Store) SettleTx(ctx context.Context, doing string, h onlyonce.Hold, fn engine.TxFunc) error {
	if err := s.checkReentry(ctx); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	r := &funcRun{doing: doing, ctx: s.guardReentry(ctx), fn: fn, key: record.KeyOf(h.ID), hold: &h}
	err := s.queue.Do(ctx, job{run: r})
	return transact.Result(r.doing, r.err, err)
}

// look reads the run's record and says whether its function runs.
func (r *funcRun) look(s engine.Runner, now *clock) (runs bool, err error) {
	finds := findIfKnown
	if r.hold != nil {
		finds = find
	}
	r.rejected = nil
	r.before, err = finds(s, &r.key)
	switch {
	case errors.Is(err, record.ErrCollision), errors.Is(err, record.ErrFence):
		r.rejected = err
		return false, nil
	case err != nil:
		return false, err
	}
	if r.token = nil; r.before != nil {
		seen, err := readTrace(s, &r.key)
		if err != nil {
			return false, err
		}
		r.token = seen.Token
	}
	if r.hold != nil {
		return r.lookHold(), nil
	}
	return r.lookClaim(now), nil
}

func (r *funcRun) lookClaim(now *clock) (runs bool) {
	switch b := r.before; {
	case b == nil:
		at := now.create()
		r.record = record.Next(r.claim, nil, at, now.newFence(at))
	case b.Expired:
		at := now.create()
		r.record = record.Next(r.claim, b, at, max(now.newFence(at), b.Fence+1))
	case b.StandsAgainst(r.claim):
		r.record = b.Record
		return false
	default:
		r.record = record.Next(r.claim, b, 0, now.fence(b.Fence))
	}
	return true
}

func (r *funcRun) lookHold() (runs bool) {
	b := r.before
	if !b.HeldBy(r.hold) {
		r.rejected = onlyonce.ErrLost
		return false
	}
	r.record = b.Record
	return true
}

// leavesNothing reports whether the run has nothing to record, not even a settlement.
func (r *funcRun) leavesNothing() bool {
	return r.panicked || r.err != nil && r.settlement.State == ""
}

var errChanged = errors.New("the function changed the record of its own command")

// write records how the run ended.
func (r *funcRun) write(s engine.Runner, now *clock) error {
	o := newSettleOp(onlyonce.Hold{ID: r.key.ID, Owner: r.record.Owner, Fence: r.record.Fence}, r.settlement)
	switch {
	case r.hold == nil:
		return r.writeClaim(o, s, now)
	case r.leavesNothing():
		return nil
	}
	if err := o.apply(s, now); err != nil || r.settlement.State == "" {
		return err
	}
	_, err := s.Exec("token", (&keyArgs{r.key.Hash[:]}).token(r.batch.token))
	return err
}

// writeClaim puts the settled record in the place of the one that was there. A fence that a
// function got is not issued again, whatever became of the run.
func (r *funcRun) writeClaim(o *settleOp, s engine.Runner, now *clock) error {
	if r.leavesNothing() {
		return keepFence(s, now, r.record.Fence)
	}
	if r.before != nil {
		if err := remove(s, now, &r.key, r.before.Fence); err != nil {
			return err
		}
	}
	if r.settlement.State == "" {
		return keepFence(s, now, r.record.Fence)
	}
	done, err := r.insert(o, s, now)
	if done || err != nil {
		return err
	}
	if there, err := known(s, &r.key); err != nil || there {
		return cmp.Or(err, errChanged)
	}
	// The function made records of other commands, and one of them has the same created_at.
	if err := now.refresh(s); err != nil {
		return err
	}
	r.record.CreatedAt = time.UnixMicro(now.create()).UTC()
	_, err = r.insert(o, s, now)
	return err
}

func (r *funcRun) insert(o *settleOp, s engine.Runner, now *clock) (done bool, err error) {
	rec := &r.record
	steps, err := record.EncodeSteps(rec.Steps)
	if err != nil {
		return false, err
	}
	n, err := s.Exec("record", o.settledArgs(now).record(&recordArgs{
		id: r.key.Hash[:], tenant: r.key.ID.Tenant, operation: r.key.ID.Operation, key: r.key.ID.Key, fingerprint: record.NullBytes(record.EncodePrint(rec.Fingerprint, rec.Summary)),
		owner: []byte(rec.Owner), attempt: int64(rec.Attempt), fence: rec.Fence, steps: steps, createdAt: rec.CreatedAt.UnixMicro(), token: r.batch.token,
	}))
	return n > 0, err
}

// applySettlement makes the run's record the one that write wrote.
func (r *funcRun) applySettlement() {
	if !r.skipped && r.settlement.State != "" {
		r.record = r.record.Settled(r.settlement, time.UnixMicro(r.settledAt).UTC())
	}
}

var errInside = errors.New("called from a function in RunTx or SettleTx of the same store, which holds the one write lock: use WithTx with its transaction")

type reentryKey struct{ store *Store }

// guardReentry marks the context of a function that runs in RunTx or SettleTx.
func (s *Store) guardReentry(ctx context.Context) context.Context {
	return context.WithValue(ctx, reentryKey{s}, true)
}

// checkReentry returns an error if the call would wait for the function that makes it.
func (s *Store) checkReentry(ctx context.Context) error {
	if ctx.Value(reentryKey{s}) != nil {
		return errInside
	}
	return nil
}
