package engine

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/group"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// A Closable engine purges in the background until it is closed. After that, it rejects every
// call, whatever the engine would still do.
type Closable struct {
	Engine
	closed atomic.Bool
	purger purger
}

// NewClosable returns a Closable engine on e, which it closes.
func NewClosable(e Engine, p Purging) *Closable {
	c := &Closable{Engine: e}
	c.purger.start(c, p)
	return c
}

// Check returns an error if the engine is closed.
func (c *Closable) Check() error {
	if c.closed.Load() {
		return group.ErrClosed
	}
	return nil
}

func (c *Closable) Close() error {
	c.purger.close()
	if c.closed.Swap(true) {
		return nil
	}
	return c.Engine.Close()
}

func (c *Closable) Claim(ctx context.Context, claim onlyonce.Claim) (onlyonce.Record, error) {
	if err := c.Check(); err != nil {
		return onlyonce.Record{}, err
	}
	return c.Engine.Claim(ctx, claim)
}

func (c *Closable) Renew(ctx context.Context, h onlyonce.Hold, lease time.Duration, steps map[string][]byte) error {
	if err := c.Check(); err != nil {
		return err
	}
	return c.Engine.Renew(ctx, h, lease, steps)
}

func (c *Closable) Settle(ctx context.Context, h onlyonce.Hold, st onlyonce.Settlement) error {
	if err := c.Check(); err != nil {
		return err
	}
	return c.Engine.Settle(ctx, h, st)
}

func (c *Closable) Lookup(ctx context.Context, id onlyonce.ID) (onlyonce.Record, error) {
	if err := c.Check(); err != nil {
		return onlyonce.Record{}, err
	}
	return c.Engine.Lookup(ctx, id)
}

func (c *Closable) Resolve(ctx context.Context, seen onlyonce.Record, st onlyonce.Settlement, d *onlyonce.Decision) error {
	if err := c.Check(); err != nil {
		return err
	}
	return c.Engine.Resolve(ctx, seen, st, d)
}

func (c *Closable) AuditTrail(ctx context.Context, id onlyonce.ID) ([]onlyonce.AuditEntry, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	return c.Engine.AuditTrail(ctx, id)
}

func (c *Closable) CountRecords(ctx context.Context) ([]onlyonce.RecordCount, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	return c.Engine.CountRecords(ctx)
}

func (c *Closable) Purge(ctx context.Context, limit int) (int, error) {
	if err := c.Check(); err != nil {
		return 0, err
	}
	return c.Engine.Purge(ctx, limit)
}

func (c *Closable) Unresolved(ctx context.Context) (n int, oldest time.Duration, err error) {
	if err := c.Check(); err != nil {
		return 0, 0, err
	}
	return c.Engine.Unresolved(ctx)
}

func (c *Closable) Diagnose(ctx context.Context) ([]onlyonce.Finding, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	return c.Engine.Diagnose(ctx)
}

func (c *Closable) Page(ctx context.Context, f onlyonce.Filter, p *record.Page) error {
	if err := c.Check(); err != nil {
		return err
	}
	return c.Engine.Page(ctx, f, p)
}

func (c *Closable) RunTx(ctx context.Context, doing string, claim onlyonce.Claim, fn TxFunc) (onlyonce.Record, error) {
	if err := c.Check(); err != nil {
		return onlyonce.Record{}, fmt.Errorf("%s: %w", doing, err)
	}
	return c.Engine.RunTx(ctx, doing, claim, fn)
}

func (c *Closable) SettleTx(ctx context.Context, doing string, h onlyonce.Hold, fn TxFunc) error {
	if err := c.Check(); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return c.Engine.SettleTx(ctx, doing, h, fn)
}

func (c *Closable) Joined(tx *sql.Tx) onlyonce.Store { return joined{c, c.Engine.Joined(tx)} }

func (c *Closable) OutboxIn(ctx context.Context, tx *sql.Tx) (Runner, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	return c.Engine.OutboxIn(ctx, tx)
}

func (c *Closable) OutboxRead(ctx context.Context) Runner {
	if c.closed.Load() {
		return closedRunner{}
	}
	return c.Engine.OutboxRead(ctx)
}

func (c *Closable) OutboxWrite(ctx context.Context, alone bool, f func(Runner) error) error {
	if err := c.Check(); err != nil {
		return err
	}
	return c.Engine.OutboxWrite(ctx, alone, f)
}

// A joined store is the engine in a caller's transaction.
type joined struct {
	*Closable
	store onlyonce.Store
}

func (j joined) Claim(ctx context.Context, claim onlyonce.Claim) (onlyonce.Record, error) {
	if err := j.Check(); err != nil {
		return onlyonce.Record{}, err
	}
	return j.store.Claim(ctx, claim)
}

func (j joined) Renew(ctx context.Context, h onlyonce.Hold, lease time.Duration, steps map[string][]byte) error {
	if err := j.Check(); err != nil {
		return err
	}
	return j.store.Renew(ctx, h, lease, steps)
}

func (j joined) Settle(ctx context.Context, h onlyonce.Hold, st onlyonce.Settlement) error {
	if err := j.Check(); err != nil {
		return err
	}
	return j.store.Settle(ctx, h, st)
}

func (j joined) Lookup(ctx context.Context, id onlyonce.ID) (onlyonce.Record, error) {
	if err := j.Check(); err != nil {
		return onlyonce.Record{}, err
	}
	return j.store.Lookup(ctx, id)
}

type closedRunner struct{}

func (closedRunner) Exec(string, []driver.NamedValue) (int64, error) { return 0, group.ErrClosed }

func (closedRunner) Query(string, []driver.NamedValue, func([]driver.Value) error) error {
	return group.ErrClosed
}
