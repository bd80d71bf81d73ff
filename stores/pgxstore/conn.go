package pgxstore

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce/stores/internal/server"
	"github.com/onlyonce-go/onlyonce/stores/pgxstore/internal/pipe"
)

// A storeConn is a connection of the store's own, used by one batch at a time. It is
// taken from the pool, so that it has the pool's settings, and replaced when it breaks.
type storeConn struct {
	pool   *pgxpool.Pool
	leave  func()    // called if the server does not respond in time; nil: nothing is
	conn   *pgx.Conn // nil: none
	sender querier   // how batches are sent over conn

	planned     time.Time   // when the server last forgot its plans
	mustReplace atomic.Bool // the connection is to be replaced

	// shared says that a pooler, such as PgBouncer in transaction mode, hands
	// the server's connection to others between transactions.
	shared bool
}

// bounded gives f as long as the server may take to respond.
func bounded(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, server.StepTimeout)
	defer cancel()
	return f(ctx)
}

// use calls f with the connection, and closes it if the server no longer knows its
// prepared statements. If there is no response in time, the other connections are left, too:
// after a failover, all of them may lead to a server that is gone, while new ones lead to the
// one that took over.
func (l *storeConn) use(f func(context.Context, *pgx.Conn) error) error {
	return bounded(context.Background(), func(ctx context.Context) error {
		defer func() {
			if ctx.Err() != nil && l.leave != nil {
				l.leave()
			}
		}()
		if l.mustReplace.Swap(false) && l.conn != nil {
			_ = l.close() // its server may be gone
		}
		if l.conn == nil || l.conn.IsClosed() {
			if err := l.open(ctx); err != nil {
				return err
			}
		}
		err := f(ctx, l.conn)
		if isStalePlan(err) {
			_ = l.conn.Close(ctx) // the error counts
		}
		return err
	})
}

// replace makes the connections be replaced before their next batches.
func replace(conns []storeConn) {
	for i := range conns {
		conns[i].mustReplace.Store(true)
	}
}

// broken reports that the connection was lost.
func (l *storeConn) broken() bool { return l.conn != nil && l.conn.IsClosed() }

func (l *storeConn) open(ctx context.Context) error {
	c, err := l.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	conn := c.Hijack()
	var pid uint32
	if err := conn.QueryRow(ctx, sqlText["backend"]).Scan(&pid); err != nil {
		return errors.Join(err, conn.Close(ctx))
	}
	if l.shared = pid != conn.PgConn().PID(); !l.shared {
		if _, err := conn.Exec(ctx, sqlText["connection settings"]); err != nil {
			return errors.Join(err, conn.Close(ctx))
		}
	}
	l.conn, l.sender, l.planned = conn, senderOf(conn, l.shared), time.Now()
	return nil
}

// senderOf returns how batches are best sent over a connection: as pgx does where
// nothing may be prepared, or a tracer records the statements.
func senderOf(conn *pgx.Conn, shared bool) querier {
	if shared || conn.Config().DefaultQueryExecMode != pgx.QueryExecModeCacheStatement || conn.Config().Tracer != nil {
		return conn
	}
	return pipe.New(conn)
}

// plansLast is how long the server uses a plan. A plan that was made while a table was small
// reads all of an index, which may have many entries soon.
const plansLast = time.Second

// sessionSetup is the statement that a batch begins with, or empty: the settings where a
// pooler keeps none for a connection, or that the server forgets its plans.
func (l *storeConn) sessionSetup() string {
	switch {
	case l.shared:
		return sqlText["transaction settings"]
	case time.Since(l.planned) >= plansLast:
		l.planned = time.Now()
		return sqlText["forget plans"]
	}
	return ""
}

func (l *storeConn) close() error {
	if l.conn == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := l.conn.Close(ctx)
	l.conn = nil
	if errors.Is(err, context.DeadlineExceeded) {
		return nil // the server will notice that the connection is gone
	}
	return err
}
