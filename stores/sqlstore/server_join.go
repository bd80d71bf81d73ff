package sqlstore

import (
	"context"
	"database/sql"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// A joinedServer is the store in a transaction that the caller opened.
type joinedServer struct {
	*server
	tx *sql.Tx
}

func (s *server) joined(tx *sql.Tx) recordStore { return joinedServer{s, tx} }

// join is for what writes.
func (t joinedServer) join(ctx context.Context) (serverSession, error) {
	l := serverSession{server: t.server, ctx: ctx, tx: t.tx}
	return l, l.dialect.checkJoinable(l)
}

func (t joinedServer) claim(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
	l, err := t.join(ctx)
	if err != nil {
		return onlyonce.Record{}, err
	}
	k := keyOf(c.ID)
	return l.claim(&k, &c)
}

func (t joinedServer) renew(ctx context.Context, h onlyonce.Hold, lease time.Duration, steps map[string][]byte) error {
	l, err := t.join(ctx)
	if err != nil {
		return err
	}
	return l.renew(h, lease, steps)
}

func (t joinedServer) settle(ctx context.Context, h onlyonce.Hold, st onlyonce.Settlement) error {
	l, err := t.join(ctx)
	if err != nil {
		return err
	}
	return l.settle(h, st, false)
}

func (t joinedServer) lookup(ctx context.Context, id onlyonce.ID) (onlyonce.Record, error) {
	return serverSession{server: t.server, ctx: ctx, tx: t.tx}.lookup(id)
}
