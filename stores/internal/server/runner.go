package server

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"slices"
	"time"

	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/transact"
)

// StepTimeout bounds how long the server may take over a group of writes, or over one of
// the store's own steps in the transaction of a function: a server that does not respond
// for so long counts as unreachable.
const StepTimeout = 15 * time.Second

// A Runner runs an engine's statements on the pool or in a transaction.
type Runner struct {
	*Store
	Ctx context.Context
	Tx  *sql.Tx // nil: the pool
}

// Runner returns one that runs statements on the pool.
func (s *Store) Runner(ctx context.Context) Runner { return Runner{Store: s, Ctx: ctx} }

// Exec runs a statement. Outside a transaction, it runs a statement again that the
// database rolled back to resolve a conflict.
func (l Runner) Exec(name string, args ...any) (res sql.Result, err error) {
	if err := l.dialect.CheckPacketSize(args); err != nil {
		return nil, err
	}
	err = l.Again(func() (err error) {
		if st := l.prepare(name); st != nil {
			res, err = st.ExecContext(l.Ctx, args...)
			return err
		}
		res, err = l.on().ExecContext(l.Ctx, l.dialect.Statements()[name], args...)
		return err
	})
	return res, err
}

// Change runs a statement and says how many rows it changed.
func (l Runner) Change(name string, args ...any) (int64, error) {
	res, err := l.Exec(name, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// Query runs a statement and calls row for every row, after the statement has ended: it
// may return rows and then fail to commit.
func (l Runner) Query(name string, row func([]driver.Value) error, args ...any) error {
	var found [][]driver.Value
	err := l.Again(func() (err error) {
		found = found[:0]
		var rows *sql.Rows
		if st := l.prepare(name); st != nil {
			rows, err = st.QueryContext(l.Ctx, args...)
		} else {
			rows, err = l.on().QueryContext(l.Ctx, l.dialect.Statements()[name], args...)
		}
		if err != nil {
			return err
		}
		return engine.Scan(rows, func(values []driver.Value) error {
			found = append(found, slices.Clone(values))
			return nil
		})
	})
	if err != nil {
		return err
	}
	for _, values := range found {
		if err := row(values); err != nil {
			return err
		}
	}
	return nil
}

// each runs a statement in a transaction and calls row for every row as it arrives, so that the rows
// need not fit into memory together. An error of the statement undoes what row has done, with the
// transaction.
func (l Runner) each(name string, row func([]driver.Value) error, args ...any) error {
	var failed error
	err := l.Again(func() error {
		rows, err := l.Tx.QueryContext(l.Ctx, l.dialect.Statements()[name], args...)
		if err != nil {
			return err
		}
		return engine.Scan(rows, func(values []driver.Value) error {
			failed = row(values)
			return failed
		})
	})
	return cmp.Or(failed, err)
}

// InTx returns the name of the statement that does in a transaction of the caller's what the
// named one does: "x in" if there is one.
func InTx(statements map[string]string, name string) string {
	if in := name + " in"; statements[in] != "" {
		return in
	}
	return name
}

func (l Runner) on() engine.Querier {
	if l.Tx != nil {
		return l.Tx
	}
	return l.DB
}

// prepare returns the pool's statement, or nil if it has none.
func (l Runner) prepare(name string) *sql.Stmt {
	st := l.prepared[name]
	if st != nil && l.Tx != nil {
		return l.Tx.StmtContext(l.Ctx, st)
	}
	return st
}

// maxConflicts is how often a step runs that the database rolls back: about half a second,
// with the pauses.
const maxConflicts = 30

// Again repeats a step that the database rolled back to resolve a conflict. A step whose
// context has ended is not confirmed, whatever the server says: some drivers then have the
// server cancel the statement, and PostgreSQL confirms a commit whose wait for the
// synchronous standbys was canceled.
func (l Runner) Again(f func() error) error {
	for n := 1; ; n++ {
		err := f()
		if err == nil && l.Tx == nil {
			err = l.Ctx.Err()
		}
		if err == nil {
			return nil
		}
		what := l.dialect.Classify(err)
		if what != ClassConflict || l.Tx != nil || n == maxConflicts || !pause(l.Ctx, n) {
			err = Explain(what, err)
			if l.Tx == nil {
				l.leave(l.Ctx, err)
			}
			return err
		}
	}
}

// Transact runs f in a transaction of its own at the isolation level, and again if the
// database rolled it back to resolve a conflict.
func (l Runner) Transact(level sql.IsolationLevel, f func(Runner) error) error {
	begin := func() (*sql.Tx, func(), error) {
		tx, err := l.DB.BeginTx(l.Ctx, &sql.TxOptions{Isolation: level})
		return tx, func() {}, err
	}
	return l.transact(begin, f)
}

// TransactBriefly is Transact for a transaction for which other processes wait. It is between two of the
// dialect's statements: one that makes the server close the connection of a process that is silent for
// long, which rolls the transaction back, and one that restores the session.
func (l Runner) TransactBriefly(level sql.IsolationLevel, limit, restore string, f func(Runner) error) error {
	begin := func() (*sql.Tx, func(), error) {
		conn, err := l.DB.Conn(l.Ctx)
		if err != nil {
			return nil, nil, err
		}
		if _, err := conn.ExecContext(l.Ctx, l.dialect.Statements()[limit]); err != nil {
			return nil, nil, Discard(conn, err)
		}
		tx, err := conn.BeginTx(l.Ctx, &sql.TxOptions{Isolation: level})
		if err != nil {
			return nil, nil, Discard(conn, err)
		}
		return tx, func() { l.giveBack(conn, restore) }, nil
	}
	return l.transact(begin, f)
}

// giveBack returns a connection to the pool once a statement has restored its session. If the server
// does not respond, that continues in the background until the driver returns.
func (l Runner) giveBack(conn *sql.Conn, restore string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.Ctx), engine.Reconnect)
	_ = within(ctx, func() error {
		defer cancel()
		if _, err := conn.ExecContext(ctx, l.dialect.Statements()[restore]); err != nil {
			return Discard(conn, err)
		}
		return conn.Close()
	})
}

// transact runs f in transactions that begin begins. It calls the function that begin returned once
// the transaction has ended.
func (l Runner) transact(begin func() (*sql.Tx, func(), error), f func(Runner) error) error {
	return l.Again(func() error {
		tx, ended, err := begin()
		if err != nil {
			return err
		}
		defer ended()
		if err := f(Runner{Store: l.Store, Ctx: l.Ctx, Tx: tx}); err != nil {
			_ = within(l.Ctx, tx.Rollback) // err is the error that counts
			return err
		}
		return within(l.Ctx, tx.Commit)
	})
}

// within runs a step that ends a transaction, and leaves it behind when ctx ends. Commit and
// Rollback of database/sql take no context, and only some drivers observe that of BeginTx.
func within(ctx context.Context, f func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- f() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Number runs a statement that returns one.
func (l Runner) Number(name string, args ...any) (n int64, err error) {
	err = l.Query(name, func(v []driver.Value) error {
		r := record.Reader{Values: v}
		n = r.Int(name)
		return r.Err
	}, args...)
	return n, err
}

// pause waits a little before the nth repeat. It reports false if ctx ends first.
func pause(ctx context.Context, n int) bool {
	return transact.Pause(ctx, time.Duration(n)*2*time.Millisecond)
}

// Discard closes a connection whose transaction may be open, and returns err.
func Discard(conn *sql.Conn, err error) error {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	return err
}
