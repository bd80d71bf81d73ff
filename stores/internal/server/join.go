package server

import (
	"context"
	"database/sql"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// A joined store is the store in a transaction that the caller opened.
type joined struct {
	*Store
	tx *sql.Tx
}

func (s *Store) Joined(tx *sql.Tx) onlyonce.Store { return joined{s, tx} }

// join returns a Runner that may write in the caller's transaction.
func (t joined) join(ctx context.Context) (Runner, error) {
	l := Runner{Store: t.Store, Ctx: ctx, Tx: t.tx}
	return l, l.dialect.CheckJoinable(l)
}

func (t joined) Claim(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
	if err := t.dialect.CheckID(c.ID); err != nil {
		return onlyonce.Record{}, err
	}
	l, err := t.join(ctx)
	if err != nil {
		return onlyonce.Record{}, err
	}
	k := record.KeyOf(c.ID)
	return l.claim(&k, &c, false)
}

func (t joined) Renew(ctx context.Context, h onlyonce.Hold, lease time.Duration, steps map[string][]byte) error {
	l, err := t.join(ctx)
	if err != nil {
		return err
	}
	return l.renew(h, lease, steps)
}

func (t joined) Settle(ctx context.Context, h onlyonce.Hold, st onlyonce.Settlement) error {
	l, err := t.join(ctx)
	if err != nil {
		return err
	}
	return l.settle(h, st, false)
}

func (t joined) Lookup(ctx context.Context, id onlyonce.ID) (onlyonce.Record, error) {
	return Runner{Store: t.Store, Ctx: ctx, Tx: t.tx}.lookup(id)
}
