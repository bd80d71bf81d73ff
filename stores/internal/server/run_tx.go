package server

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/transact"
)

// RunTx claims, runs and settles in one transaction. It writes no row before the
// function has returned: the lock of its command, which ends with the transaction,
// keeps the others out.
func (s *Store) RunTx(ctx context.Context, doing string, c onlyonce.Claim, fn engine.TxFunc) (onlyonce.Record, error) {
	k := record.KeyOf(c.ID)
	if r := s.seen(ctx, &k); r.StandsAgainst(&c) {
		return r.Record, nil
	}
	if r, first := s.inside.Enter(&k, &c); !first {
		return r, nil
	}
	defer s.inside.Exit(&k)
	r, err := transact.Run(ctx, doing, txEngine{s}, &c, &k, fn)
	if err == nil {
		s.hints.Add(&k.Hash)
	}
	return r, err
}

// SettleTx settles a hold in a transaction.
func (s *Store) SettleTx(ctx context.Context, doing string, h onlyonce.Hold, fn engine.TxFunc) error {
	k := record.KeyOf(h.ID)
	return transact.Settle(ctx, doing, txEngine{s}, &h, &k, fn)
}

// A txEngine runs functions in transactions of the pool.
type txEngine struct{ *Store }

// Begin begins a transaction and looks the record up.
func (e txEngine) Begin(ctx context.Context, c *transact.Command) (transact.Tx[*sql.Tx], error) {
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
func (e txEngine) BeginAlone(ctx context.Context, _ *transact.Command) (transact.Tx[*sql.Tx], error) {
	return e.newTx(ctx), nil
}

// newTx returns a transaction that has not begun. Its context does not end with ctx.
func (e txEngine) newTx(ctx context.Context) *storeTx {
	own, giveUp := context.WithCancelCause(context.WithoutCancel(ctx))
	return &storeTx{Session: e.Session(own), giveUp: giveUp}
}

// Settle settles the hold.
func (e txEngine) Settle(ctx context.Context, c *transact.Command) error {
	t := e.newTx(ctx)
	defer t.Close(ctx)
	return t.step(func() error { return t.settle(*c.Hold, c.Settlement, false) })
}

// ErrStillRunning is the error of a transaction whose end a dialect did not see.
var ErrStillRunning = errors.New("the transaction has not ended at the server")

// Trace waits on another connection until the transaction has ended, and looks for
// what it left.
func (e txEngine) Trace(ctx context.Context, c *transact.Command) (now transact.Trace, err error) {
	conn, err := e.DB.Conn(ctx)
	if err != nil {
		return now, err
	}
	if err := errors.Join(e.dialect.Ended(ctx, conn, c.Token), conn.Close()); err != nil {
		return now, err
	}
	err = e.Session(ctx).Query("trace", func(v []driver.Value) (err error) {
		now, err = transact.ReadTrace(v)
		return err
	}, c.Key.Hash[:])
	return now, err
}

// Durable returns once the record survives a crash of the server.
func (e txEngine) Durable(ctx context.Context, c *transact.Command, row *record.Stored) error {
	if row == nil {
		_, err := e.Session(ctx).find(&c.Key) // which returns once it is on disk
		return err
	}
	return e.dialect.Durable(e.Session(ctx), &c.Key, row)
}

// KeepFence makes later fences of the command higher.
func (e txEngine) KeepFence(ctx context.Context, c *transact.Command, fence int64) error {
	l := e.Session(ctx)
	n, err := l.Change("keep fence", e.Encode.KeepFence(&c.Key, c.Claim.Owner, fence).List()...)
	if n == 0 || err != nil {
		_, err = l.Exec("raise floor", fence)
	}
	return err
}

// Classify says what an error of the database, or of a connection, means.
func (e txEngine) Classify(err error) transact.Class {
	switch class := e.dialect.Classify(err); {
	case errors.Is(err, errSilent):
		return transact.Temporary
	case class != ClassConflict && errors.Is(err, driver.ErrBadConn):
		return transact.Broken
	default:
		return class.Repeated()
	}
}
