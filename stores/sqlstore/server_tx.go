package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/sqlrow"
)

// A serverRun is a caller's function on its way through a transaction of its
// own.
type serverRun struct {
	*server
	ctx  context.Context
	fn   txFunc
	key  key
	asks *onlyonce.Claim // by runTx
	hold *onlyonce.Hold  // by settleTx

	seen       sight           // the row, before
	record     onlyonce.Record // as it was claimed, then as it was settled
	settlement onlyonce.Settlement
	token      []byte // of the transaction
	given      int64  // the highest fence that the function has got
	recorded   bool   // and a row has it
}

var errUndone = errors.New("the database or other attempts undid the transaction every time")

// runTx writes no row before the function has returned: the lock of its
// command, which ends with the transaction, keeps the others out.
func (s *server) runTx(ctx context.Context, c onlyonce.Claim, fn txFunc) (onlyonce.Record, error) {
	k := keyOf(c.ID)
	if r := s.seen(ctx, &k); r != nil && !c.Takes(r.Record) {
		return r.Record, nil
	}
	if r, first := s.inside.enter(&k, &c); !first {
		return r, nil
	}
	defer s.inside.exit(&k)
	r := &serverRun{server: s, ctx: ctx, fn: fn, key: k, asks: &c}
	defer r.keepFence()
	err := r.run("sqlstore: run in a transaction")
	if err == nil {
		s.hints.Add(&k.hash)
	}
	return r.record, err
}

func (s *server) settleTx(ctx context.Context, h onlyonce.Hold, fn txFunc) error {
	r := &serverRun{server: s, ctx: ctx, fn: fn, key: keyOf(h.ID), hold: &h}
	return r.run("sqlstore: settle in a transaction")
}

// An ownError is the error of the caller's function, which it gets as it is.
type ownError struct{ err error }

func (e *ownError) Error() string { return e.err.Error() }

func (r *serverRun) run(doing string) error {
	err := r.often()
	if own := (*ownError)(nil); errors.As(err, &own) {
		return own.err
	}
	if err != nil {
		r.record = onlyonce.Record{}
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

// often runs the function until it is undone by nobody.
func (r *serverRun) often() error {
	var undone error
	var took time.Duration // the last run
	for n := range sqlrow.MaxRuns {
		if n > 0 && !sqlrow.Pause(r.ctx, sqlrow.AfterRun(n, took)) {
			return errors.Join(r.ctx.Err(), undone)
		}
		began := time.Now()
		again, err := r.once()
		if !again {
			return err
		}
		undone, took = err, time.Since(began)
	}
	return fmt.Errorf("%w: %w: %w", onlyonce.ErrUnavailable, errUndone, undone)
}

// A turn is one transaction. Whoever goes on after it with another connection
// leaves it first: all of a pool's connections may be in turns.
type turn struct {
	*serverRun
	conn      *sql.Conn
	in        line
	committed bool
	left      bool
}

// once runs the function in a transaction. It says again if that was undone,
// and nothing is left of it.
func (r *serverRun) once() (again bool, err error) {
	conn, tx, got, err := r.begin()
	if err != nil {
		return r.dialect.trouble(err) == troubleConflict, err
	}
	// A transaction that has begun does not heed the end of its caller.
	t := &turn{serverRun: r, conn: conn, in: line{server: r.server, ctx: context.WithoutCancel(r.ctx), tx: tx}}
	defer t.leave()
	if got != sqlrow.LockMine {
		return false, t.inFlight(got)
	}
	runs, err := t.look()
	if err == nil && !runs {
		t.leave()
		err = t.dialect.durable(t.line(t.ctx), &t.key, t.seen.row)
	}
	if !runs || err != nil {
		return false, err
	}
	err = t.call()
	if err != nil {
		return t.failed(err)
	}
	written, err := t.write()
	if err != nil || !written {
		return t.undone(err)
	}
	return t.commit()
}

// begin begins a transaction on a connection of its own. ctx bounds the wait
// for the connection.
func (r *serverRun) begin() (conn *sql.Conn, tx *sql.Tx, got string, err error) {
	locks := r.locks()
	r.token = sqlrow.NewToken()
	for range 3 {
		if conn, err = r.db.Conn(r.ctx); err != nil {
			return nil, nil, "", err
		}
		tx, got, err = r.dialect.begin(context.WithoutCancel(r.ctx), conn, locks, r.token)
		if err == nil {
			return conn, tx, got, nil
		}
		r.dialect.end(conn, locks, r.token)
		_ = conn.Close()
		if !errors.Is(err, driver.ErrBadConn) {
			break
		}
	}
	return nil, nil, "", explain(r.dialect.trouble(err), err)
}

// locks are those of what is asked for; nil: none.
func (r *serverRun) locks() *sqlrow.Locks {
	if r.asks == nil {
		return nil
	}
	locks := sqlrow.LocksOf(r.key.hash, r.asks.Fingerprint)
	return &locks
}

// leave ends the transaction, if it has not ended, and gives the lock and the
// connection back. A connection that may still be in the transaction is given up:
// what makes it as it was would commit.
func (t *turn) leave() (rolledBack bool) {
	if t.left {
		return false
	}
	t.left = true
	rolledBack = t.in.tx.Rollback() == nil
	if !rolledBack && !t.committed {
		_ = t.conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	t.dialect.end(t.conn, t.locks(), t.token)
	_ = t.conn.Close()
	return rolledBack
}

// inFlight answers while another process runs the command.
func (t *turn) inFlight(got string) error {
	t.leave()
	found, err := t.line(t.ctx).find(&t.key)
	switch {
	case err != nil:
		return err
	case found != nil && !found.Expired && !t.asks.Takes(found.Record):
		t.record = found.Record
	default:
		t.record = running(t.asks)
		if got == sqlrow.LockOther {
			t.record.Fingerprint = sqlrow.Another
		}
	}
	return nil
}

// look reads the record and says whether the function runs.
func (t *turn) look() (runs bool, err error) {
	t.seen, err = t.dialect.look(t.in, &t.key, t.token)
	if err != nil {
		return false, err
	}
	row := t.seen.row
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
	fence := max(t.seen.now, t.seen.floor+1, t.given+1)
	if row != nil {
		fence = max(fence, row.Fence+1)
	}
	t.record = sqlrow.Next(c, row, fence, fence)
	return true, nil
}

// call calls the function. When it panics, the transaction is rolled back.
func (t *turn) call() (err error) {
	if t.asks != nil {
		t.given = t.record.Fence
	}
	t.settlement, err = t.fn(t.ctx, t.in.tx, t.record)
	return err
}

// keepFence makes every fence to come for the command higher than one that the
// function got in vain, as far as the database can be reached: by a row where
// there is none, otherwise by the floor.
func (r *serverRun) keepFence() {
	if r.given == 0 || r.recorded {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), reconnect)
	defer cancel()
	l, id := r.line(ctx), &r.key.id
	for {
		n, err := l.change("keep fence", r.key.hash[:], r.dialect.plain(id.Tenant), r.dialect.plain(id.Operation), r.dialect.plain(id.Key), []byte(r.asks.Owner), r.given)
		if n == 0 || err != nil {
			_, err = l.exec("raise floor", r.given)
		}
		if err == nil || r.dialect.trouble(err) != troubleOther || !sqlrow.Pause(ctx, keepPause) {
			return
		}
	}
}

// keepPause is the longest pause before a fence is kept again, after a connection
// broke.
const keepPause = 100 * time.Millisecond

// failed rolls back what the function wrote and records its settlement alone.
func (t *turn) failed(own error) (again bool, err error) {
	t.leave()
	if t.dialect.trouble(own) == troubleConflict {
		return true, own
	}
	if t.settlement.State == "" {
		return false, &ownError{own}
	}
	alone := t.line(t.in.ctx)
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

func (t *turn) recordAlone(l line) error {
	t.seen.mark = 0
	written, err := t.dialect.record(l, &t.seen, &t.record, l.settlementValues(&t.settlement), nil)
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
func (t *turn) write() (written bool, err error) {
	st := &t.settlement
	if t.hold != nil {
		if err := t.dialect.same(t.in, &t.seen); err != nil {
			return false, err
		}
		written, err = t.in.end(&t.key, *t.hold, st, t.token)
		if err == nil && !written {
			err = onlyonce.ErrLost
		}
		return written, err
	}
	return t.dialect.record(t.in, &t.seen, &t.record, t.in.settlementValues(st), t.token)
}

// undone rolls back because the command could not be settled: the database
// failed, or another attempt has the record.
func (t *turn) undone(cause error) (again bool, err error) {
	rolledBack := t.leave()
	switch {
	case cause == nil:
		return true, errConflict
	case errors.Is(cause, onlyonce.ErrLost):
		return false, cause
	case errors.Is(cause, sql.ErrTxDone), errors.Is(cause, errEnded):
		return false, fmt.Errorf("%w: %w: %w", onlyonce.ErrUnknown, errEnded, cause)
	case t.dialect.trouble(cause) == troubleConflict && rolledBack:
		return true, cause
	}
	return false, cause
}

func (t *turn) commit() (again bool, err error) {
	err = t.in.tx.Commit()
	if t.committed = err == nil; t.committed {
		t.recorded = true
		t.settled()
		return false, nil
	}
	what := t.dialect.trouble(err)
	if what == troubleConflict {
		return true, explain(what, err)
	}
	return false, t.doubt(explain(what, err)) // some errors come after a commit, and some of a pooler's instead of its answer
}

// settled makes the run's record what was written.
func (t *turn) settled() {
	if t.settlement.State == "" {
		return
	}
	t.dialect.settled(&t.key, t.record.Fence)
	t.record = t.record.Settled(t.settlement, time.UnixMicro(t.seen.now).UTC())
}
