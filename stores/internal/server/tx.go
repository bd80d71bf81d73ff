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

// RunTx claims, runs and settles in one transaction. It writes no row before the
// function has returned: the lock of its command, which ends with the transaction,
// keeps the others out.
func (s *Store) RunTx(ctx context.Context, doing string, c onlyonce.Claim, fn engine.TxFunc) (onlyonce.Record, error) {
	if err := s.dialect.CheckID(c.ID); err != nil {
		return onlyonce.Record{}, transact.Result(doing, nil, err)
	}
	k := record.KeyOf(c.ID)
	if r := s.seen(ctx, &k); r.StandsAgainst(&c) {
		return r.Record, nil
	}
	if r, first := s.runningTx.Enter(&k, &c); !first {
		return r, nil
	}
	defer s.runningTx.Exit(&k)
	r, err := transact.Run(ctx, doing, transactor{s}, &c, &k, fn)
	s.leave(ctx, err)
	if err == nil {
		s.seenCache.Add(&k.Hash)
	}
	return r, err
}

// SettleTx settles a hold in a transaction.
func (s *Store) SettleTx(ctx context.Context, doing string, h onlyonce.Hold, fn engine.TxFunc) error {
	k := record.KeyOf(h.ID)
	err := transact.Settle(ctx, doing, transactor{s}, &h, &k, fn)
	s.leave(ctx, err)
	return err
}

// A transactor runs functions in transactions of the pool.
type transactor struct{ *Store }

// Begin begins a transaction and looks the record up.
func (e transactor) Begin(ctx context.Context, c *transact.Command) (transact.Tx[*sql.Tx], error) {
	conn, err := e.DB.Conn(ctx)
	if err != nil {
		return nil, err
	}
	t := e.newTx(ctx)
	t.conn, t.locks, t.token = conn, c.Locks(), c.Token
	err = t.step(func() error { return t.begin(c) })
	if err == nil && t.gaveUp() {
		err = errSilent // the transaction has lost its context
	}
	if err != nil {
		t.Close(ctx)
		return nil, err
	}
	return t, nil
}

// BeginAlone begins nothing: one statement records the settlement, and commits by
// itself.
func (e transactor) BeginAlone(ctx context.Context, _ *transact.Command) (transact.Tx[*sql.Tx], error) {
	return e.newTx(ctx), nil
}

// newTx returns a transaction that has not begun. Its context does not end with ctx.
func (e transactor) newTx(ctx context.Context) *storeTx {
	own, giveUp := context.WithCancelCause(context.WithoutCancel(ctx))
	return &storeTx{Runner: e.Runner(own), cancel: giveUp}
}

// Settle settles the hold.
func (e transactor) Settle(ctx context.Context, c *transact.Command) error {
	t := e.newTx(ctx)
	defer t.Close(ctx)
	return t.step(func() error { return t.settle(*c.Hold, c.Settlement, false) })
}

// ErrStillRunning is the error of a transaction whose end a dialect did not see.
var ErrStillRunning = errors.New("the transaction has not ended at the server")

// Trace waits on another connection until the transaction has ended, and looks for
// what it left.
func (e transactor) Trace(ctx context.Context, c *transact.Command) (now transact.Trace, err error) {
	conn, err := e.DB.Conn(ctx)
	if err != nil {
		return now, err
	}
	if err := errors.Join(e.dialect.Ended(ctx, conn, c.Token), conn.Close()); err != nil {
		return now, err
	}
	there := false
	err = e.Runner(ctx).Query("trace", func(v []driver.Value) (err error) {
		there = true
		now, err = transact.ReadTrace(v)
		return err
	}, c.Key.Hash[:])
	if err == nil && !there {
		err = engine.ErrNoFence // without the floor, the record does not tell
	}
	return now, err
}

// Durable reports whether the row that the transaction saw survives a crash of the server.
func (e transactor) Durable(ctx context.Context, c *transact.Command) (bool, error) {
	l := e.Runner(ctx)
	again, err := e.dialect.Durable(l, &c.Key, Look{Found: c.Seen.Row})
	if err != nil || !again {
		return err == nil, err
	}
	now, err := l.find(&c.Key)
	return now.IsSame(c.Seen.Row), err
}

// Flushed returns once everything that was read survives a crash of the server.
func (e transactor) Flushed(ctx context.Context, _ *transact.Command, from int64) (again bool, err error) {
	return e.dialect.Flushed(e.Runner(ctx), from)
}

// KeepFence makes later fences of the command higher.
func (e transactor) KeepFence(ctx context.Context, c *transact.Command, fence int64) error {
	l := e.Runner(ctx)
	n, err := l.Change("keep fence", e.Encode.KeepFence(&c.Key, c.Claim.Owner, fence).List()...)
	if n == 0 || err != nil {
		_, err = l.Exec("raise floor", fence)
	}
	return err
}

// Classify returns the class of an error of the database, or of a connection.
func (e transactor) Classify(err error) transact.Class {
	switch class := e.dialect.Classify(err); {
	case errors.Is(err, errSilent):
		return transact.Temporary
	case class != ClassConflict && errors.Is(err, driver.ErrBadConn):
		return transact.Broken
	default:
		return class.Repeated()
	}
}

// A storeTx is a transaction on a connection of the pool, or none: what is written
// then commits by itself. Its context ends only when the server does not respond.
type storeTx struct {
	Runner
	cancel    context.CancelCauseFunc // ends the context
	timer     *time.Timer             // gives up a step; nil: there was none
	conn      *sql.Conn               // nil: none, or it was given back
	locks     *transact.Locks
	token     []byte
	committed bool
}

var errSilent = fmt.Errorf("%w: the server did not respond within %v", onlyonce.ErrUnavailable, StepTimeout)

// step runs one of the store's own steps, and ends the context if the step takes longer
// than StepTimeout. The function runs between two steps and has no such limit.
func (t *storeTx) step(f func() error) error {
	if t.timer == nil {
		t.timer = time.AfterFunc(StepTimeout, func() { t.cancel(errSilent) })
	} else {
		t.timer.Reset(StepTimeout)
	}
	err := f()
	if !t.timer.Stop() {
		<-t.Ctx.Done()
	}
	if err != nil && t.gaveUp() && !errors.Is(err, errSilent) {
		err = fmt.Errorf("%w: %v", errSilent, err) // the error may say that the caller's context ended, which is not so
	}
	return err
}

// gaveUp reports whether a step took too long.
func (t *storeTx) gaveUp() bool { return context.Cause(t.Ctx) == errSilent }

// finish runs a step that ends the transaction, and leaves it behind when the context ends.
func (t *storeTx) finish(f func() error) error {
	return t.step(func() error { return within(t.Ctx, f) })
}

func (t *storeTx) begin(c *transact.Command) error {
	tx, got, err := t.dialect.Begin(t.Ctx, t.conn, t.locks, t.token)
	if err != nil {
		return t.Explain(err)
	}
	t.Tx = tx
	c.Seen, err = t.dialect.Look(t.Runner, &c.Key, t.token)
	c.Seen.Lock = got
	return err
}

// Handle returns the transaction that the function gets.
func (t *storeTx) Handle() *sql.Tx { return t.Tx }

// Close rolls the transaction back if it has not ended, and releases the locks and the
// connection. If the server does not respond, the rollback continues in the background until the
// driver returns.
func (t *storeTx) Close(context.Context) {
	conn := t.conn
	if conn == nil {
		t.cancel(nil)
		return
	}
	t.conn = nil
	_ = t.finish(func() error {
		t.release(conn)
		return nil
	})
}

// release returns the connection to the pool. A connection that may still be in the
// transaction is closed, because resetting it for the pool would commit.
func (t *storeTx) release(conn *sql.Conn) {
	defer t.cancel(nil)
	if t.Tx != nil {
		if err := t.Tx.Rollback(); err != nil && !t.committed {
			_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		}
	}
	t.dialect.End(conn, t.locks, t.token)
	_ = conn.Close()
}

// Commit records how the command ended, and commits. A statement that commits by
// itself leaves no trace, so that its error is never in doubt.
func (t *storeTx) Commit(_ context.Context, c *transact.Command) (settledAt int64, o transact.Outcome, err error) {
	var written bool
	err = t.step(func() (err error) {
		settledAt, written, err = t.write(c)
		return err
	})
	switch {
	case err != nil && t.gaveUp():
		return 0, transact.RolledBack, err
	case errors.Is(err, sql.ErrTxDone), errors.Is(err, transact.ErrEnded):
		return 0, transact.Ended, err
	case err != nil:
		return 0, transact.RolledBack, err
	case !written:
		return 0, transact.Overtaken, nil
	}
	if t.Tx != nil {
		err := t.finish(t.Tx.Commit)
		if err == nil && t.gaveUp() {
			err = errSilent // see Runner.Again
		}
		if err != nil {
			what := t.dialect.Classify(err)
			if err = Explain(what, err); what == ClassConflict {
				return 0, transact.RolledBack, err
			}
			return 0, transact.InDoubt, err // some errors come after a commit, and a pooler may reply in the server's place
		}
	}
	t.committed = true
	if c.Settlement.State != "" {
		t.dialect.Settled(&c.Key, c.Record.Fence)
	}
	return settledAt, transact.Committed, nil
}

// write settles the command in the transaction, if it is still the function's.
func (t *storeTx) write(c *transact.Command) (settledAt int64, written bool, err error) {
	if c.Hold != nil {
		if err := t.dialect.CheckSameTx(t.Runner, &c.Seen, c.Token); err != nil {
			return 0, false, err
		}
		written, err = t.end(&c.Key, *c.Hold, &c.Settlement, c.Token)
		return 0, written, err
	}
	token := c.Token
	if t.Tx == nil {
		token = nil
	}
	settledAt, err = t.dialect.Record(t.Runner, &c.Seen, &c.Key, &c.Record, t.Encode.Settled(&c.Settlement).OrReleased(), token)
	return settledAt, settledAt != 0, err
}
