package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// WithTx returns the store inside a transaction that the caller opened:
// nothing it does is there before the caller commits, or after a rollback. A
// transaction that read before should have been begun with the write lock
// (BEGIN IMMEDIATE), for SQLite may refuse it the lock later.
func (s *Store) WithTx(tx *sql.Tx) onlyonce.Store { return &inTx{store: s, tx: tx} }

type inTx struct {
	store *Store
	tx    *sql.Tx
}

func (t *inTx) do(ctx context.Context, o op) error {
	t.store.joined.Add(1)
	on := through{ctx: ctx, on: t.tx, text: t.store.text}
	if done, err := o.alone(on); done || err != nil {
		return err
	}
	if _, err := on.exec("lock", nil); err != nil {
		return err
	}
	now, err := readClock(on)
	if err != nil {
		return err
	}
	return o.apply(on, now)
}

func (t *inTx) Claim(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
	o := newClaimOp(c)
	if err := t.do(ctx, o); err != nil {
		return onlyonce.Record{}, fmt.Errorf("sqlstore: claim in a transaction: %w", err)
	}
	return o.record, nil
}

func (t *inTx) Renew(ctx context.Context, h onlyonce.Hold, lease time.Duration, steps map[string][]byte) error {
	if err := t.do(ctx, &renewOp{key: keyOf(h.ID), hold: h, lease: lease, steps: steps}); err != nil {
		return fmt.Errorf("sqlstore: renew in a transaction: %w", err)
	}
	return nil
}

func (t *inTx) Settle(ctx context.Context, h onlyonce.Hold, st onlyonce.Settlement) error {
	if err := t.do(ctx, newSettleOp(h, st)); err != nil {
		return fmt.Errorf("sqlstore: settle in a transaction: %w", err)
	}
	return nil
}

func (t *inTx) Lookup(ctx context.Context, id onlyonce.ID) (onlyonce.Record, error) {
	k := keyOf(id)
	r, err := find(through{ctx: ctx, on: t.tx, text: t.store.text}, &k)
	if err == nil && (r == nil || r.expired) {
		err = onlyonce.ErrNotFound
	}
	if err != nil {
		return onlyonce.Record{}, fmt.Errorf("sqlstore: lookup in a transaction: %w", err)
	}
	return r.Record, nil
}
