package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync/atomic"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/group"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/transact"
)

// A closable engine rejects every call once it is closed, whatever the engine would still do.
type closable struct {
	engine.Engine
	closed atomic.Bool
}

func (c *closable) check() error {
	if c.closed.Load() {
		return group.ErrClosed
	}
	return nil
}

func (c *closable) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	return c.Engine.Close()
}

func (c *closable) Claim(ctx context.Context, claim onlyonce.Claim) (onlyonce.Record, error) {
	if err := c.check(); err != nil {
		return onlyonce.Record{}, err
	}
	return c.Engine.Claim(ctx, claim)
}

func (c *closable) Renew(ctx context.Context, h onlyonce.Hold, lease time.Duration, steps map[string][]byte) error {
	if err := c.check(); err != nil {
		return err
	}
	return c.Engine.Renew(ctx, h, lease, steps)
}

func (c *closable) Settle(ctx context.Context, h onlyonce.Hold, st onlyonce.Settlement) error {
	if err := c.check(); err != nil {
		return err
	}
	return c.Engine.Settle(ctx, h, st)
}

func (c *closable) Lookup(ctx context.Context, id onlyonce.ID) (onlyonce.Record, error) {
	if err := c.check(); err != nil {
		return onlyonce.Record{}, err
	}
	return c.Engine.Lookup(ctx, id)
}

func (c *closable) Resolve(ctx context.Context, seen onlyonce.Record, st onlyonce.Settlement) error {
	if err := c.check(); err != nil {
		return err
	}
	return c.Engine.Resolve(ctx, seen, st)
}

func (c *closable) Purge(ctx context.Context, limit int) (int, error) {
	if err := c.check(); err != nil {
		return 0, err
	}
	return c.Engine.Purge(ctx, limit)
}

func (c *closable) Unresolved(ctx context.Context) (n int, oldest time.Duration, err error) {
	if err := c.check(); err != nil {
		return 0, 0, err
	}
	return c.Engine.Unresolved(ctx)
}

func (c *closable) Diagnose(ctx context.Context) ([]onlyonce.Finding, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	return c.Engine.Diagnose(ctx)
}

func (c *closable) Page(ctx context.Context, f onlyonce.Filter, p *record.Page) error {
	if err := c.check(); err != nil {
		return err
	}
	return c.Engine.Page(ctx, f, p)
}

func (c *closable) RunTx(ctx context.Context, doing string, claim onlyonce.Claim, fn engine.TxFunc) (onlyonce.Record, error) {
	if err := c.check(); err != nil {
		return onlyonce.Record{}, transact.Result(doing, nil, err)
	}
	return c.Engine.RunTx(ctx, doing, claim, fn)
}

func (c *closable) SettleTx(ctx context.Context, doing string, h onlyonce.Hold, fn engine.TxFunc) error {
	if err := c.check(); err != nil {
		return transact.Result(doing, nil, err)
	}
	return c.Engine.SettleTx(ctx, doing, h, fn)
}

func (c *closable) Joined(tx *sql.Tx) onlyonce.Store { return joined{c, c.Engine.Joined(tx)} }

func (c *closable) OutboxIn(ctx context.Context, tx *sql.Tx) (engine.Runner, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	return c.Engine.OutboxIn(ctx, tx)
}

func (c *closable) OutboxRead(ctx context.Context) engine.Runner {
	if c.closed.Load() {
		return closedRunner{}
	}
	return c.Engine.OutboxRead(ctx)
}

func (c *closable) OutboxWrite(ctx context.Context, alone bool, f func(engine.Runner) error) error {
	if err := c.check(); err != nil {
		return err
	}
	return c.Engine.OutboxWrite(ctx, alone, f)
}

// A joined store is the engine in a caller's transaction.
type joined struct {
	*closable
	keeper onlyonce.Store
}

func (j joined) Claim(ctx context.Context, claim onlyonce.Claim) (onlyonce.Record, error) {
	if err := j.check(); err != nil {
		return onlyonce.Record{}, err
	}
	return j.keeper.Claim(ctx, claim)
}

func (j joined) Renew(ctx context.Context, h onlyonce.Hold, lease time.Duration, steps map[string][]byte) error {
	if err := j.check(); err != nil {
		return err
	}
	return j.keeper.Renew(ctx, h, lease, steps)
}

func (j joined) Settle(ctx context.Context, h onlyonce.Hold, st onlyonce.Settlement) error {
	if err := j.check(); err != nil {
		return err
	}
	return j.keeper.Settle(ctx, h, st)
}

func (j joined) Lookup(ctx context.Context, id onlyonce.ID) (onlyonce.Record, error) {
	if err := j.check(); err != nil {
		return onlyonce.Record{}, err
	}
	return j.keeper.Lookup(ctx, id)
}

type closedRunner struct{}

func (closedRunner) Exec(string, []driver.NamedValue) (int64, error) { return 0, group.ErrClosed }

func (closedRunner) Query(string, []driver.NamedValue, func([]driver.Value) error) error {
	return group.ErrClosed
}
