package server

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/transact"
)

// A storeTx is a transaction on a connection of the pool, or none: what is written
// then commits by itself. Its context ends only when the server does not respond.
type storeTx struct {
	Session
	giveUp    context.CancelCauseFunc // ends the context
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
		t.timer = time.AfterFunc(StepTimeout, func() { t.giveUp(errSilent) })
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
// Commit and Rollback of database/sql take no context, and only some drivers heed that
// of BeginTx.
func (t *storeTx) finish(f func() error) error {
	return t.step(func() error {
		ended := make(chan error, 1)
		go func() { ended <- f() }()
		select {
		case err := <-ended:
			return err
		case <-t.Ctx.Done():
			return context.Cause(t.Ctx)
		}
	})
}

func (t *storeTx) begin(c *transact.Command) error {
	tx, got, err := t.dialect.Begin(t.Ctx, t.conn, t.locks, t.token)
	if err != nil {
		return t.Explain(err)
	}
	t.Tx = tx
	c.Seen, err = t.dialect.Look(t.Session, &c.Key, t.token)
	c.Seen.Lock = got
	return err
}

// Handle returns what the function gets.
func (t *storeTx) Handle() *sql.Tx { return t.Tx }

// Close rolls the transaction back if it has not ended, and releases the locks and the
// connection. If the server does not respond, that goes on without the caller until the
// driver returns.
func (t *storeTx) Close(context.Context) {
	conn := t.conn
	if conn == nil {
		t.giveUp(nil)
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
	defer t.giveUp(nil)
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
func (t *storeTx) Commit(_ context.Context, c *transact.Command) (settled int64, o transact.Outcome, err error) {
	var written bool
	err = t.step(func() (err error) {
		settled, written, err = t.write(c)
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
		if err := t.finish(t.Tx.Commit); err != nil {
			what := t.dialect.Classify(err)
			if err = explain(what, err); what == ClassConflict {
				return 0, transact.RolledBack, err
			}
			return 0, transact.InDoubt, err // some errors come after a commit, and a pooler may reply in the server's place
		}
	}
	t.committed = true
	if c.Settlement.State != "" {
		t.dialect.Settled(&c.Key, c.Record.Fence)
	}
	return settled, transact.Committed, nil
}

// write settles the command in the transaction, if it is still the function's.
func (t *storeTx) write(c *transact.Command) (settled int64, written bool, err error) {
	if c.Hold != nil {
		if err := t.dialect.CheckSameTx(t.Session, &c.Seen, c.Token); err != nil {
			return 0, false, err
		}
		written, err = t.end(&c.Key, *c.Hold, &c.Settlement, c.Token)
		return 0, written, err
	}
	token := c.Token
	if t.Tx == nil {
		token = nil
	}
	settled, err = t.dialect.Record(t.Session, &c.Seen, &c.Key, &c.Record, t.Encode.Settled(&c.Settlement).OrReleased(), token)
	return settled, settled != 0, err
}
