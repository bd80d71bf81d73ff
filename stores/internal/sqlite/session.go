package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"

	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
)

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

func (d *driverSession) Exec(name string, args []driver.NamedValue) (int64, error) {
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

func (d *driverSession) Query(name string, args []driver.NamedValue, row func([]driver.Value) error) error {
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

// A sqlSession goes through database/sql.
type sqlSession struct {
	ctx  context.Context
	on   engine.Querier
	text map[string]string
}

func (t sqlSession) Exec(name string, args []driver.NamedValue) (int64, error) {
	res, err := t.on.ExecContext(t.ctx, t.text[name], engine.Values(args)...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (t sqlSession) Query(name string, args []driver.NamedValue, row func([]driver.Value) error) error {
	rows, err := t.on.QueryContext(t.ctx, t.text[name], engine.Values(args)...)
	if err != nil {
		return err
	}
	return engine.Scan(rows, row)
}
