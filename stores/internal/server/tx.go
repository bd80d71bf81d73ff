package server

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/transact"
)

// A serverTx runs a caller's function in a transaction of its own, as often as the
// database asks for it.
type serverTx struct {
	*Store
	ctx  context.Context
	fn   engine.TxFunc
	key  record.Key
	asks *onlyonce.Claim // by runTx
	hold *onlyonce.Hold  // by settleTx

	seen       Snapshot        // the row, before
	record     onlyonce.Record // as it was claimed, then as it was settled
	settlement onlyonce.Settlement
	token      []byte // of the transaction
	given      int64  // the highest fence that the function has got
	recorded   bool   // and a row has it
}

var errUndone = errors.New("the database or other attempts undid the transaction every time")

// RunTx writes no row before the function has returned: the lock of its
// command, which ends with the transaction, keeps the others out.
func (s *Store) RunTx(ctx context.Context, c onlyonce.Claim, fn engine.TxFunc) (onlyonce.Record, error) {
	k := record.KeyOf(c.ID)
	if r := s.seen(ctx, &k); r != nil && !c.Takes(r.Record) {
		return r.Record, nil
	}
	if r, first := s.inside.Enter(&k, &c); !first {
		return r, nil
	}
	defer s.inside.Exit(&k)
	r := &serverTx{Store: s, ctx: ctx, fn: fn, key: k, asks: &c}
	defer r.keepFence()
	err := r.run(engine.RunningTx)
	if err == nil {
		s.hints.Add(&k.Hash)
	}
	return r.record, err
}

func (s *Store) SettleTx(ctx context.Context, h onlyonce.Hold, fn engine.TxFunc) error {
	r := &serverTx{Store: s, ctx: ctx, fn: fn, key: record.KeyOf(h.ID), hold: &h}
	return r.run(engine.SettlingTx)
}

// An ownError is the error of the caller's function, which it gets as it is.
type ownError struct{ err error }

func (e *ownError) Error() string { return e.err.Error() }

func (r *serverTx) run(doing string) error {
	err := r.retry()
	if own := (*ownError)(nil); errors.As(err, &own) {
		return own.err
	}
	if err != nil {
		r.record = onlyonce.Record{}
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

// retry runs the function until its transaction is not rolled back by a conflict.
func (r *serverTx) retry() error {
	var undone error
	var took time.Duration // the last run
	for n := range transact.MaxRuns {
		if n > 0 && !transact.Pause(r.ctx, transact.AfterRun(n, took)) {
			return errors.Join(r.ctx.Err(), undone)
		}
		began := time.Now()
		again, err := r.attempt()
		if !again {
			return err
		}
		undone, took = err, time.Since(began)
	}
	return fmt.Errorf("%w: %w: %w", onlyonce.ErrUnavailable, errUndone, undone)
}

// A txAttempt is one transaction of a serverTx. It is closed before another connection
// is used: every connection of the pool may be in a txAttempt.
type txAttempt struct {
	*serverTx
	conn      *sql.Conn
	in        Session
	committed bool
	left      bool
}

// attempt runs the function in a transaction. It returns again if the transaction was
// rolled back by a conflict, so that nothing of it is left.
func (r *serverTx) attempt() (again bool, err error) {
	conn, tx, got, err := r.begin()
	if err != nil {
		return r.dialect.Classify(err) == ClassConflict, err
	}
	// A transaction that has begun does not heed the end of its caller.
	t := &txAttempt{serverTx: r, conn: conn, in: Session{Store: r.Store, Ctx: context.WithoutCancel(r.ctx), Tx: tx}}
	defer t.close()
	if got != transact.LockMine {
		return false, t.inFlight(got)
	}
	runs, err := t.look()
	if err == nil && !runs {
		t.close()
		err = t.dialect.Durable(t.Session(t.ctx), &t.key, t.seen.Row)
	}
	if !runs || err != nil {
		return false, err
	}
	err = t.call()
	if err != nil {
		return t.onFuncError(err)
	}
	written, err := t.write()
	if err != nil || !written {
		return t.onConflict(err)
	}
	return t.commit()
}

// begin begins a transaction on a connection of its own. ctx bounds the wait
// for the connection.
func (r *serverTx) begin() (conn *sql.Conn, tx *sql.Tx, got string, err error) {
	locks := r.locks()
	r.token = transact.NewToken()
	for range 3 {
		if conn, err = r.DB.Conn(r.ctx); err != nil {
			return nil, nil, "", err
		}
		tx, got, err = r.dialect.Begin(context.WithoutCancel(r.ctx), conn, locks, r.token)
		if err == nil {
			return conn, tx, got, nil
		}
		r.dialect.End(conn, locks, r.token)
		_ = conn.Close()
		if !errors.Is(err, driver.ErrBadConn) {
			break
		}
	}
	return nil, nil, "", explain(r.dialect.Classify(err), err)
}

// locks are those of what is asked for; nil: none.
func (r *serverTx) locks() *transact.Locks {
	if r.asks == nil {
		return nil
	}
	locks := transact.LocksOf(r.key.Hash, r.asks.Fingerprint)
	return &locks
}

// close rolls the transaction back if it has not ended, and releases the lock and the
// connection. A connection that may still be in the transaction is closed: resetting
// it for the pool would commit.
func (t *txAttempt) close() (rolledBack bool) {
	if t.left {
		return false
	}
	t.left = true
	rolledBack = t.in.Tx.Rollback() == nil
	if !rolledBack && !t.committed {
		_ = t.conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	t.dialect.End(t.conn, t.locks(), t.token)
	_ = t.conn.Close()
	return rolledBack
}

// inFlight answers while another process runs the command.
func (t *txAttempt) inFlight(got string) error {
	t.close()
	found, err := t.Session(t.ctx).find(&t.key)
	switch {
	case err != nil:
		return err
	case found != nil && !found.Expired && !t.asks.Takes(found.Record):
		t.record = found.Record
	default:
		t.record = transact.RunningRecord(t.asks)
		if got == transact.LockOther {
			t.record.Fingerprint = transact.Another
		}
	}
	return nil
}

// look reads the record and says whether the function runs.
func (t *txAttempt) look() (runs bool, err error) {
	t.seen, err = t.dialect.Look(t.in, &t.key, t.token)
	if err != nil {
		return false, err
	}
	row := t.seen.Row
	if _, err := collided(row, &t.key, nil); err != nil {
		return false, err
	}
	if h := t.hold; h != nil {
		if !held(row, *h) {
			return false, onlyonce.ErrLost
		}
		t.record = row.Record
		return true, nil
	}
	c := t.asks
	if row != nil && !row.Expired && !c.Takes(row.Record) {
		t.record = row.Record
		return false, nil
	}
	fence := max(t.seen.Now, t.seen.Floor+1, t.given+1)
	if row != nil {
		fence = max(fence, row.Fence+1)
	}
	t.record = record.Next(c, row, fence, fence)
	return true, nil
}

// call calls the function. When it panics, the transaction is rolled back.
func (t *txAttempt) call() (err error) {
	if t.asks != nil {
		t.given = t.record.Fence
	}
	t.settlement, err = t.fn(t.ctx, t.in.Tx, t.record)
	return err
}

// keepFence makes every fence to come for the command higher than one that the
// function got in vain, as far as the database can be reached: by a row where
// there is none, otherwise by the floor.
func (r *serverTx) keepFence() {
	if r.given == 0 || r.recorded {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), engine.Reconnect)
	defer cancel()
	l, id := r.Session(ctx), &r.key.ID
	for {
		n, err := l.Change("keep fence", r.key.Hash[:], r.dialect.EncodeText(id.Tenant), r.dialect.EncodeText(id.Operation), r.dialect.EncodeText(id.Key), []byte(r.asks.Owner), r.given)
		if n == 0 || err != nil {
			_, err = l.Exec("raise floor", r.given)
		}
		if err == nil || r.dialect.Classify(err) != ClassOther || !transact.Pause(ctx, keepPause) {
			return
		}
	}
}

// keepPause is the longest pause before a fence is kept again, after a connection
// broke.
const keepPause = 100 * time.Millisecond

// onFuncError rolls back what the function wrote and records its settlement alone.
func (t *txAttempt) onFuncError(own error) (again bool, err error) {
	t.close()
	if t.dialect.Classify(own) == ClassConflict {
		return true, own
	}
	if t.settlement.State == "" {
		return false, &ownError{own}
	}
	alone := t.Session(t.in.Ctx)
	if t.hold != nil {
		err = alone.settle(*t.hold, t.settlement, false)
	} else {
		err = t.recordAlone(alone)
	}
	if err != nil {
		return false, &ownError{errors.Join(own, err)}
	}
	return false, &ownError{own}
}

func (t *txAttempt) recordAlone(l Session) error {
	t.seen.Mark = 0
	written, err := t.dialect.Record(l, &t.seen, &t.record, l.SettlementValues(&t.settlement), nil)
	if err == nil && !written {
		err = onlyonce.ErrLost
	}
	if err == nil {
		t.recorded = true
		t.settled()
	}
	return err
}

// write settles the command in the transaction, if it is still the run's.
func (t *txAttempt) write() (written bool, err error) {
	st := &t.settlement
	if t.hold != nil {
		if err := t.dialect.CheckSameTx(t.in, &t.seen, t.token); err != nil {
			return false, err
		}
		written, err = t.in.end(&t.key, *t.hold, st, t.token)
		if err == nil && !written {
			err = onlyonce.ErrLost
		}
		return written, err
	}
	return t.dialect.Record(t.in, &t.seen, &t.record, t.in.SettlementValues(st), t.token)
}

// onConflict rolls back a transaction that could not settle the command, because the
// database failed or another attempt has the record.
func (t *txAttempt) onConflict(cause error) (again bool, err error) {
	rolledBack := t.close()
	switch {
	case cause == nil:
		return true, errConflict
	case errors.Is(cause, onlyonce.ErrLost):
		return false, cause
	case errors.Is(cause, sql.ErrTxDone), errors.Is(cause, transact.ErrEnded):
		return false, fmt.Errorf("%w: %w: %w", onlyonce.ErrUnknown, transact.ErrEnded, cause)
	case t.dialect.Classify(cause) == ClassConflict && rolledBack:
		return true, cause
	}
	return false, cause
}

func (t *txAttempt) commit() (again bool, err error) {
	err = t.in.Tx.Commit()
	if t.committed = err == nil; t.committed {
		t.recorded = true
		t.settled()
		return false, nil
	}
	what := t.dialect.Classify(err)
	if what == ClassConflict {
		return true, explain(what, err)
	}
	return false, t.resolveCommit(explain(what, err)) // some errors come after a commit, and some of a pooler's instead of its answer
}

// settled makes the run's record what was written.
func (t *txAttempt) settled() {
	if t.settlement.State == "" {
		return
	}
	t.dialect.Settled(&t.key, t.record.Fence)
	t.record = t.record.Settled(t.settlement, time.UnixMicro(t.seen.Now).UTC())
}
