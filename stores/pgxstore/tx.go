package pgxstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/postgres"
	"github.com/onlyonce-go/onlyonce/stores/internal/server"
	"github.com/onlyonce-go/onlyonce/stores/internal/transact"
)

// A storeTx is a transaction on a connection of the pool.
type storeTx struct {
	conn     *pgxpool.Conn // nil: it was given back
	listener *listener
	tx       tx
}

// Handle returns what the function gets.
func (t *storeTx) Handle() pgx.Tx { return &t.tx }

// Close rolls back what is not committed. The pool closes a connection whose
// transaction is still open.
func (t *storeTx) Close(ctx context.Context) {
	if t.conn == nil {
		return
	}
	_ = t.tx.end(ctx)
	t.conn.Release()
	t.conn = nil
}

func (t *storeTx) begin(ctx context.Context, c *transact.Command) (err error) {
	var b pgx.Batch
	b.BeginTx(pgx.TxOptions{})
	locks := c.Locks()
	if locks != nil {
		request, command, uncompared := postgres.LockNames(locks)
		b.Queue(sqlText["lock"], request, command, uncompared)
	}
	b.Queue(sqlText["look"], c.Key.Hash[:], transact.TokenLock(c.Token))
	results := t.conn.Conn().SendBatch(ctx, &b)
	t.tx.Tx = results.Tx()
	defer func() { err = errors.Join(err, results.Close()) }()
	if _, err := results.Exec(); err != nil {
		return err
	}
	seen := &c.Seen
	*seen = transact.View{Lock: transact.LockMine}
	if locks != nil {
		if err := results.QueryRow().Scan(&seen.Lock); err != nil {
			return err
		}
	}
	var found row
	err = results.QueryRow().Scan(found.into(&seen.Floor, &seen.Mark, &seen.Token, nil)...)
	if errors.Is(err, pgx.ErrNoRows) {
		err = engine.ErrNoFence
	}
	if err != nil {
		return err
	}
	if seen.Now = found.now; found.owner != nil {
		seen.Row = found.stored()
	}
	return nil
}

var errAborted = errors.New("the transaction was aborted by an error that its function got and did not return: nothing was written")

// Commit records how the command ended and commits, in one round trip.
func (t *storeTx) Commit(ctx context.Context, c *transact.Command) (settled int64, o transact.Outcome, err error) {
	conn := t.conn.Conn()
	switch conn.PgConn().TxStatus() {
	case 'E':
		return 0, transact.RolledBack, errAborted
	case 'I':
		return 0, transact.Ended, nil
	}
	s, err := ending(c)
	if err != nil {
		return 0, transact.RolledBack, err
	}
	s.into = []any{&settled, nil}
	err = bounded(ctx, func(ctx context.Context) error {
		return send(ctx, conn, t.listener, "", []*statement{s}, sqlText["commit"])
	})
	t.tx.done = true
	switch {
	case err == nil:
		o = transact.Committed
	case claimed(err), postgres.Code(err) == codeDivision:
		o = transact.Overtaken
	case postgres.Code(err) == codeRoot:
		o = transact.Ended
	case isRetryable(err):
		o = transact.RolledBack
	default: // a server that is shutting down reports that after a commit, too, and a pooler may reply in its place
		o = transact.InDoubt
	}
	return settled, o, err
}

// ending returns the statement that ends the command, and fails if it writes
// nothing.
func ending(c *transact.Command) (*statement, error) {
	k, settled := &c.Key, postgres.Encode.Settled(&c.Settlement)
	if c.Hold != nil {
		end := endArgs{token: c.Token, hold: server.HoldOf(k, c.Hold), mark: postgres.Mark(&c.Seen)}
		if settled.State == "" {
			return &statement{name: releaseOrFail, key: k, args: end.release()}, nil
		}
		return &statement{name: settleOrFail, key: k, args: end.settle(settled)}, nil
	}
	args, err := postgres.RecordArgsOf(&c.Seen, k, &c.Record, settled.OrReleased(), c.Token)
	if err != nil {
		return nil, err
	}
	if c.Seen.Row == nil {
		return &statement{name: recordNewOrFail, key: k, args: recordNew(&args)}, nil
	}
	return &statement{name: recordOrFail, key: k, args: args.List()}, nil
}
