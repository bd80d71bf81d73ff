package pgxstore

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// closedRows and closedBatch are what a transaction that has ended gives.
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
