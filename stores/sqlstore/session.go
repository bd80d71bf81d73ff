package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
)

// A session runs the named statements of an engine.
type session interface {
	exec(name string, args []driver.NamedValue) (affected int64, err error)
	query(name string, args []driver.NamedValue, row func([]driver.Value) error) error
}

// args makes the arguments of a statement.
func args(values ...any) []driver.NamedValue {
	list := make([]driver.NamedValue, len(values))
	for i, v := range values {
		list[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
	}
	return list
}

// A driverSession talks to a connection's driver, with statements prepared
// once: what database/sql adds to each call costs a tenth of a claim.
type driverSession struct {
	conn     driver.Conn
	text     map[string]string
	prepared map[string]driver.Stmt
}

var errOldDriver = errors.New("the driver's statements know no context: use one with driver.StmtExecContext and StmtQueryContext, such as modernc.org/sqlite")

func (d *driverSession) prepare(name string) (driver.Stmt, error) {
	if st, ok := d.prepared[name]; ok {
		return st, nil
	}
	st, err := d.conn.Prepare(d.text[name])
	if err != nil {
		return nil, err
	}
	d.prepared[name] = st
	return st, nil
}

func (d *driverSession) exec(name string, args []driver.NamedValue) (int64, error) {
	st, err := d.prepare(name)
	if err != nil {
		return 0, err
	}
	x, ok := st.(driver.StmtExecContext)
	if !ok {
		return 0, errOldDriver
	}
	res, err := x.ExecContext(context.Background(), args)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (d *driverSession) query(name string, args []driver.NamedValue, row func([]driver.Value) error) error {
	st, err := d.prepare(name)
	if err != nil {
		return err
	}
	x, ok := st.(driver.StmtQueryContext)
	if !ok {
		return errOldDriver
	}
	rows, err := x.QueryContext(context.Background(), args)
	if err != nil {
		return err
	}
	return errors.Join(each(rows, row), rows.Close())
}

func each(rows driver.Rows, row func([]driver.Value) error) error {
	values := make([]driver.Value, len(rows.Columns()))
	for {
		switch err := rows.Next(values); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := row(values); err != nil {
			return err
		}
	}
}

func (d *driverSession) close() {
	for _, st := range d.prepared {
		_ = st.Close()
	}
	clear(d.prepared)
}

// A querier is a *sql.Tx or a *sql.DB.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// A sqlSession goes through database/sql.
type sqlSession struct {
	ctx  context.Context
	on   querier
	text map[string]string
}

func (t sqlSession) exec(name string, args []driver.NamedValue) (int64, error) {
	res, err := t.on.ExecContext(t.ctx, t.text[name], anys(args)...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (t sqlSession) query(name string, args []driver.NamedValue, row func([]driver.Value) error) error {
	rows, err := t.on.QueryContext(t.ctx, t.text[name], anys(args)...)
	if err != nil {
		return err
	}
	return scan(rows, row)
}

func anys(args []driver.NamedValue) []any {
	values := make([]any, len(args))
	for i, a := range args {
		values[i] = a.Value
	}
	return values
}

// scan calls row for every row, and closes rows.
func scan(rows *sql.Rows, row func([]driver.Value) error) error {
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
