package pgxstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A tx is the transaction that a function of RunTx or SettleTx gets. Only the store
// ends it. After that it rejects every call, because its connection may be in use by
// another caller.
type tx struct {
	pgx.Tx
	conn *pgx.Conn
	done bool
}

var errNotYours = errors.New("pgxstore: the transaction is the store's to end: return from the function, with an error to roll back")

// end rolls back a transaction that is not committed.
func (t *tx) end(ctx context.Context) error {
	t.done = true
	if t.conn.IsClosed() || t.conn.PgConn().TxStatus() == 'I' {
		return nil
	}
	return bounded(ctx, func(ctx context.Context) error {
		_, err := t.conn.Exec(ctx, sqlText["rollback"])
		return err
	})
}

// Commit returns an error: the store commits.
func (t *tx) Commit(context.Context) error { return t.reject() }

// Rollback returns an error: a function rolls back by returning one.
func (t *tx) Rollback(context.Context) error { return t.reject() }

// reject returns why the function must not end the transaction.
func (t *tx) reject() error {
	if t.done {
		return pgx.ErrTxClosed
	}
	return errNotYours
}

// Begin makes a savepoint.
func (t *tx) Begin(ctx context.Context) (pgx.Tx, error) {
	if t.done {
		return nil, pgx.ErrTxClosed
	}
	return t.Tx.Begin(ctx)
}

// Exec executes a statement.
func (t *tx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if t.done {
		return pgconn.CommandTag{}, pgx.ErrTxClosed
	}
	return t.Tx.Exec(ctx, sql, args...)
}

// Query sends a query.
func (t *tx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if t.done {
		return closedRows{}, pgx.ErrTxClosed
	}
	return t.Tx.Query(ctx, sql, args...)
}

// QueryRow sends a query for one row.
func (t *tx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if t.done {
		return closedRows{}
	}
	return t.Tx.QueryRow(ctx, sql, args...)
}

// CopyFrom copies rows into a table.
func (t *tx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	if t.done {
		return 0, pgx.ErrTxClosed
	}
	return t.Tx.CopyFrom(ctx, table, columns, src)
}

// SendBatch sends statements together.
func (t *tx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if t.done {
		return closedBatch{}
	}
	return t.Tx.SendBatch(ctx, b)
}

// Prepare prepares a statement.
func (t *tx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if t.done {
		return nil, pgx.ErrTxClosed
	}
	return t.Tx.Prepare(ctx, name, sql)
}

// closedRows and closedBatch are the results of a transaction that has ended.
type closedRows struct{ pgx.Rows }

func (closedRows) Close()            {}
func (closedRows) Err() error        { return pgx.ErrTxClosed }
func (closedRows) Next() bool        { return false }
func (closedRows) Scan(...any) error { return pgx.ErrTxClosed }

type closedBatch struct{ pgx.BatchResults }

func (closedBatch) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, pgx.ErrTxClosed }
func (closedBatch) Query() (pgx.Rows, error)         { return closedRows{}, pgx.ErrTxClosed }
func (closedBatch) QueryRow() pgx.Row                { return closedRows{} }
func (closedBatch) Close() error                     { return pgx.ErrTxClosed }
