package pgxstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/postgres"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/server"
	"github.com/onlyonce-go/onlyonce/stores/internal/transact"
)

// RunTx claims, runs fn and settles in one transaction of a connection of the
// pool, at the isolation level that the pool or the database has. Beginning and
// ending the transaction take one round trip each. fn must not end the
// transaction: its Commit and Rollback return an error. If fn sets another
// search_path, nothing is committed. After a serialization
// failure or a deadlock, fn runs again, up to twenty times in all.
func (s *Store) RunTx(ctx context.Context, c onlyonce.Claim, fn func(ctx context.Context, tx pgx.Tx, r onlyonce.Record) (onlyonce.Settlement, error)) (onlyonce.Record, error) {
	err := c.Check()
	if err == nil {
		err = s.maintenance.Check()
	}
	if err != nil {
		return onlyonce.Record{}, wrap("run in a transaction", err)
	}
	k := record.KeyOf(c.ID)
	if s.seenCache.Has(&k.Hash) {
		if found, err := s.look(ctx, &k); err == nil && found.StandsAgainst(&c) {
			return found.Record, nil
		}
	}
	r, err := transact.Run(ctx, "pgxstore: run in a transaction", transactor{s}, &c, &k, fn)
	s.leave(err)
	if err == nil {
		s.seenCache.Add(&k.Hash)
		if r.Owner == c.Owner {
			s.standbys.Settled(&k, r.Fence)
		}
	}
	return r, err
}

// SettleTx runs fn and settles an existing claim in one transaction, as RunTx
// does. The claim's row is checked first but is not locked until the end: if
// another attempt takes over meanwhile, the settlement fails, and fn's rows are
// rolled back.
func (s *Store) SettleTx(ctx context.Context, h onlyonce.Hold, fn func(ctx context.Context, tx pgx.Tx) (onlyonce.Settlement, error)) error {
	if err := s.maintenance.Check(); err != nil {
		return wrap("settle in a transaction", err)
	}
	k := record.KeyOf(h.ID)
	err := transact.Settle(ctx, "pgxstore: settle in a transaction", transactor{s}, &h, &k, func(ctx context.Context, tx pgx.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
		return fn(ctx, tx)
	})
	s.leave(err)
	return err
}

// A transactor runs functions in transactions on connections of the pool.
type transactor struct{ *Store }

// Begin begins the transaction, takes the command's locks and looks, in one round
// trip.
func (e transactor) Begin(ctx context.Context, c *transact.Command) (transact.Tx[pgx.Tx], error) {
	return e.acquire(ctx, func(ctx context.Context, t *storeTx) error { return t.begin(ctx, c) })
}

// BeginAlone begins a transaction in which only the settlement is recorded.
func (e transactor) BeginAlone(ctx context.Context, c *transact.Command) (transact.Tx[pgx.Tx], error) {
	return e.acquire(ctx, func(ctx context.Context, t *storeTx) error {
		var b pgx.Batch
		b.Queue(sqlText["begin"])
		b.Queue(e.text["ended"], transact.TokenLock(c.Token))
		return t.conn.Conn().SendBatch(ctx, &b).Close()
	})
}

// acquire takes a connection of the pool, and gives it back if begin fails.
func (e transactor) acquire(ctx context.Context, begin func(context.Context, *storeTx) error) (transact.Tx[pgx.Tx], error) {
	conn, err := e.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	t := &storeTx{conn: conn, store: e.Store, tx: tx{conn: conn.Conn()}}
	ctx = context.WithoutCancel(ctx)
	if err := bounded(ctx, func(ctx context.Context) error { return begin(ctx, t) }); err != nil {
		t.Close(ctx)
		return nil, explain(err)
	}
	return t, nil
}

// Settle settles the hold as Store.Settle does.
func (e transactor) Settle(ctx context.Context, c *transact.Command) error {
	return settle(ctx, e.Store, c.Hold, &c.Settlement)
}

// Trace waits on another connection until the transaction has ended, which gives
// its lock back, and looks for its row.
func (e transactor) Trace(ctx context.Context, c *transact.Command) (now transact.Trace, err error) {
	err = e.withPoolConn(ctx, func(conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, sqlText["begin"]); err != nil {
			return err
		}
		tx := tx{conn: conn}
		defer tx.end(context.WithoutCancel(ctx))
		if _, err := conn.Exec(ctx, e.text["ended"], transact.TokenLock(c.Token)); err != nil {
			return err
		}
		replica := false
		err := conn.QueryRow(ctx, e.text["trace"], c.Key.Hash[:]).Scan(&now.Fence, &now.SettledAt, &now.Token, &now.Floor, &replica, &now.Server)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			err = engine.ErrNoFence
		case err == nil && replica:
			err = transact.ErrReplica
		}
		return err
	})
	return now, err
}

// Durable reports whether the synchronous standbys, if there are any, have the row that the
// transaction saw.
func (e transactor) Durable(ctx context.Context, c *transact.Command) (bool, error) {
	again, err := e.durable(ctx, &c.Key, c.Seen.Row)
	if err != nil || !again {
		return err == nil, err
	}
	now, err := e.look(ctx, &c.Key)
	return now.IsSame(c.Seen.Row), err
}

// Flushed returns once the synchronous standbys, if there are any, have everything that was
// read from a server.
func (e transactor) Flushed(ctx context.Context, c *transact.Command, from int64) (again bool, err error) {
	return e.standbys.Flushed(ctx, from, e.replicate(&c.Key))
}

// KeepFence makes later fences of the command higher.
func (e transactor) KeepFence(ctx context.Context, c *transact.Command, fence int64) error {
	return e.withPoolConn(ctx, func(conn *pgx.Conn) error {
		done, err := conn.Exec(ctx, e.text["keep fence"], postgres.Encode.KeepFence(&c.Key, c.Claim.Owner, fence).List()...)
		if err != nil || done.RowsAffected() == 0 {
			_, err = conn.Exec(ctx, e.text["raise floor"], fence)
		}
		return err
	})
}

// Classify returns the class of an error of the server, or of a connection.
func (transactor) Classify(err error) transact.Class { return classify(err) }

// A storeTx is a transaction on a connection of the pool.
type storeTx struct {
	conn  *pgxpool.Conn // nil: it was given back
	store *Store
	tx    tx
}

// Handle returns the transaction that the function gets.
func (t *storeTx) Handle() pgx.Tx { return &t.tx }

// Close rolls back an uncommitted transaction. The pool closes a connection whose
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
		b.Queue(t.store.text["lock"], request, command, uncompared)
	}
	b.Queue(t.store.text["look"], c.Key.Hash[:], transact.TokenLock(c.Token))
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
	var readOnly bool
	err = results.QueryRow().Scan(found.into(&found.server, &seen.Floor, &seen.Mark, &seen.Token, &readOnly)...)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return engine.ErrNoFence
	case err != nil:
		return err
	case readOnly:
		return transact.ErrReadOnly
	}
	if seen.Now = found.now; found.owner != nil {
		seen.Row = found.stored()
	}
	return nil
}

var errAborted = errors.New("the transaction was aborted by an error that its function got and did not return: nothing was written")

// Commit records how the command ended and commits, in one round trip.
func (t *storeTx) Commit(ctx context.Context, c *transact.Command) (settledAt int64, o transact.Outcome, err error) {
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
	s.into = []any{&settledAt, nil}
	err = bounded(ctx, func(ctx context.Context) error {
		return t.store.send(ctx, conn, "", []*statement{s}, sqlText["commit"])
	})
	t.tx.done = true
	o = outcomeOf(s, err)
	if o == transact.RolledBack || o == transact.InDoubt {
		err = explain(err)
	}
	return settledAt, o, err
}

// ending returns the statement that ends the command, and fails if it writes
// nothing.
func ending(c *transact.Command) (*statement, error) {
	k, settled := &c.Key, postgres.Encode.Settled(&c.Settlement)
	if c.Hold != nil {
		end := endArgs{token: c.Token, hold: server.HoldOf(k, c.Hold), mark: postgres.Mark(&c.Seen)}
		if settled.State == "" {
			return &statement{query: releaseOrFailQuery, key: k, args: end.release()}, nil
		}
		return &statement{query: settleOrFailQuery, key: k, args: end.settle(settled)}, nil
	}
	args, err := postgres.RecordArgsOf(&c.Seen, k, &c.Record, settled.OrReleased(), c.Token)
	if err != nil {
		return nil, err
	}
	if c.Seen.Row == nil {
		return &statement{query: recordNewOrFailQuery, key: k, args: recordNew(&args)}, nil
	}
	return &statement{query: recordOrFailQuery, key: k, args: args.List()}, nil
}
