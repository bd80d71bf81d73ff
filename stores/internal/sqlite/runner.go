package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/transact"
)

// A driverRunner uses a connection's driver directly, with statements prepared once.
// database/sql would add a tenth to the time of a claim.
type driverRunner struct {
	conn     driver.Conn
	text     map[string]string
	prepared map[string]driver.Stmt
}

var errOldDriver = errors.New("the driver's statements do not support contexts: use a driver with driver.StmtExecContext and StmtQueryContext, such as modernc.org/sqlite")

func (d *driverRunner) prepare(name string) (driver.Stmt, error) {
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

func (d *driverRunner) Exec(name string, args []driver.NamedValue) (int64, error) {
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

func (d *driverRunner) Query(name string, args []driver.NamedValue, row func([]driver.Value) error) error {
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

func (d *driverRunner) close() {
	for _, st := range d.prepared {
		_ = st.Close()
	}
	clear(d.prepared)
}

// A sqlRunner uses database/sql.
type sqlRunner struct {
	ctx  context.Context
	on   engine.Querier
	text map[string]string
}

func (t sqlRunner) Exec(name string, args []driver.NamedValue) (int64, error) {
	res, err := t.on.ExecContext(t.ctx, t.text[name], engine.Values(args)...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (t sqlRunner) Query(name string, args []driver.NamedValue, row func([]driver.Value) error) error {
	rows, err := t.on.QueryContext(t.ctx, t.text[name], engine.Values(args)...)
	if err != nil {
		return err
	}
	return engine.Scan(rows, row)
}

// checkOpen rejects a caller's transaction that has ended. Some errors make SQLite roll it back, and
// every later statement would be committed by itself.
func (t sqlRunner) checkOpen() error {
	if _, err := t.Exec("probe", nil); err != nil {
		return nil // a transaction is open, or the next statement fails as well
	}
	t.ctx = context.WithoutCancel(t.ctx)
	_, err := t.Exec("rollback", nil)
	return errors.Join(transact.ErrEnded, err)
}

// A writer has the one connection that writes. Only the leader of the queue uses it.
type writer struct {
	db    *sql.DB
	text  map[string]string
	file  *file
	setup func(context.Context, *sql.Conn) error

	conn   *sql.Conn // nil when there is none
	runner *driverRunner
}

func (w *writer) open(ctx context.Context) error {
	conn, err := w.db.Conn(ctx)
	if err != nil {
		return err
	}
	if err := w.setup(ctx, conn); err != nil {
		return errors.Join(err, conn.Close())
	}
	w.conn = conn
	w.file.noteLog()
	return conn.Raw(func(c any) error {
		w.runner = &driverRunner{conn: c.(driver.Conn), text: w.text, prepared: make(map[string]driver.Stmt)}
		return nil
	})
}

// ready opens the connection if there is none.
func (w *writer) ready() error {
	if w.conn != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), engine.Reconnect)
	defer cancel()
	return w.open(ctx)
}

// use calls f with the connection's runner. It hides an error and a panic of f from Raw,
// which would close the connection and wait forever for a transaction that is open on it.
func (w *writer) use(f func(*driverRunner) error) (err error) {
	if err := w.ready(); err != nil {
		return err
	}
	var caught any
	raw := w.conn.Raw(func(any) error {
		defer func() {
			if caught = recover(); caught != nil {
				caught = fmt.Sprintf("%v\n\n%s", caught, debug.Stack())
			}
		}()
		err = f(w.runner)
		return nil
	})
	if caught != nil {
		panic(caught)
	}
	return cmp.Or(err, raw)
}

// discard closes the connection with any transaction that is open on it. The next use opens
// another one.
func (w *writer) discard() {
	conn := w.conn
	if conn == nil {
		return
	}
	w.conn = nil
	w.file.forgetLog()
	_ = conn.Raw(func(any) error {
		w.runner.close()
		return driver.ErrBadConn
	})
}

func (w *writer) close() error {
	conn := w.conn
	if conn == nil {
		return nil
	}
	w.conn = nil
	w.file.forgetLog()
	_ = conn.Raw(func(any) error {
		w.runner.close()
		return nil
	})
	return conn.Close()
}
