package engine

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// A Runner runs the named statements of an engine.
type Runner interface {
	Exec(name string, args []driver.NamedValue) (affected int64, err error)
	Query(name string, args []driver.NamedValue, row func([]driver.Value) error) error
}

// Args makes the arguments of a statement.
func Args(values ...any) []driver.NamedValue {
	list := make([]driver.NamedValue, len(values))
	for i, v := range values {
		list[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
	}
	return list
}

// A Querier is a *sql.Tx or a *sql.DB.
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Values returns the values of arguments.
func Values(args []driver.NamedValue) []any {
	values := make([]any, len(args))
	for i, a := range args {
		values[i] = a.Value
	}
	return values
}

// Scan calls row for every row, and closes rows.
func Scan(rows *sql.Rows, row func([]driver.Value) error) error {
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	values := make([]driver.Value, len(columns))
	into := make([]any, len(columns))
	for i := range values {
		into[i] = (*any)(&values[i])
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		if err := row(values); err != nil {
			return err
		}
	}
	return errors.Join(rows.Err(), rows.Close())
}

// ScanPage reads rows until the page is full, and closes rows.
func ScanPage(rows *sql.Rows, p *record.Page, decode func([]driver.Value) record.Stored) error {
	err := Scan(rows, func(v []driver.Value) error { return p.Add(decode(v)) })
	if errors.Is(err, record.ErrPageFull) {
		return nil
	}
	return err
}

// A RowQuerier is a *sql.DB, a *sql.Tx or a *sql.Conn.
type RowQuerier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}
