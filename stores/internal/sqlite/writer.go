package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
)

// A writer has the one connection that writes. Only the leader of the queue uses it.
type writer struct {
	db    *sql.DB
	text  map[string]string
	setup func(context.Context, *sql.Conn) error

	conn   *sql.Conn // nil when there is none
	direct *driverSession
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
	return conn.Raw(func(c any) error {
		w.direct = &driverSession{conn: c.(driver.Conn), text: w.text, prepared: make(map[string]driver.Stmt)}
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

// use calls f with the connection's session. Raw gets to see neither an error
// nor a panic of f, for it would close the connection, and wait for ever for a
// transaction that is open on it.
func (w *writer) use(f func(*driverSession) error) (err error) {
	if err := w.ready(); err != nil {
		return err
	}
	var caught any
	raw := w.conn.Raw(func(any) error {
		defer func() {
			if caught = recover(); caught != nil {
				caught = fmt.Sprintf("sqlstore: %v\n\n%s", caught, debug.Stack())
			}
		}()
		err = f(w.direct)
		return nil
	})
	if caught != nil {
		panic(caught)
	}
	return cmp.Or(err, raw)
}

// discard closes the connection, whatever is open on it: the next use gets
// another one.
func (w *writer) discard() {
	conn := w.conn
	if conn == nil {
		return
	}
	w.conn = nil
	_ = conn.Raw(func(any) error {
		w.direct.close()
		return driver.ErrBadConn
	})
}

func (w *writer) close() error {
	conn := w.conn
	if conn == nil {
		return nil
	}
	w.conn = nil
	_ = conn.Raw(func(any) error {
		w.direct.close()
		return nil
	})
	return conn.Close()
}
