package integration

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"modernc.org/sqlite"
)

// A hook runs a function before a statement is sent to the server, so that a
// test decides what happens between two statements of one call.
type hook struct {
	mu      sync.Mutex
	part    string // of the statement's text
	before  func()
	lost    func(text string) bool // whether the response to a statement is to be lost
	after   func()
	fails   int // how many statements that contain failing are not sent
	failing string
	asked   []query  // the queries that were sent as they are
	changed []query  // the other statements that were sent as they are
	direct  []string // the statements that the store prepared on the driver's connection
}

// A query is the text of a statement and its arguments.
type query struct {
	text string
	args []any
}

// note adds a statement to a list.
func (h *hook) note(list *[]query, text string, args []driver.NamedValue) {
	h.mu.Lock()
	defer h.mu.Unlock()
	q := query{text: text}
	for _, a := range args {
		q.args = append(q.args, a.Value)
	}
	*list = append(*list, q)
}

// changes returns the statements that return no rows and were sent.
func (h *hook) changes() []query {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.changed)
}

// queries returns the queries that were sent, and forgets them.
func (h *hook) queries() []query {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.asked
	h.asked = nil
	return list
}

// statements returns the statements that were prepared on a driver's connection and contain part.
func (h *hook) statements(part string) (list []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, text := range h.direct {
		if strings.Contains(text, part) {
			list = append(list, text)
		}
	}
	return list
}

// once makes f run before the next statement that contains part.
func (h *hook) once(part string, f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.part, h.before = part, f
}

// meet runs the function if it is the statement's turn.
func (h *hook) meet(text string) {
	h.mu.Lock()
	f := h.before
	if f == nil || !strings.Contains(text, h.part) {
		h.mu.Unlock()
		return
	}
	h.before = nil
	h.mu.Unlock()
	f()
}

// lose makes the connection break after the next such statement was executed, and
// before its response. f runs in between.
func (h *hook) lose(such func(text string) bool, f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost, h.after = such, f
}

// fail makes the connection break before the next n statements that contain part.
func (h *hook) fail(n int, part string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fails, h.failing = n, part
}

// send returns errBroken if the statement is not to be sent.
func (h *hook) send(text string) error {
	h.meet(text)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fails == 0 || !strings.Contains(text, h.failing) {
		return nil
	}
	h.fails--
	return errBroken
}

// answer returns errBroken if the response to the statement is to be lost.
func (h *hook) answer(text string) error {
	h.mu.Lock()
	f := h.after
	if f == nil || !h.lost(text) {
		h.mu.Unlock()
		return nil
	}
	h.after = nil
	h.mu.Unlock()
	f()
	return errBroken
}

// met reports that the functions have run.
func (h *hook) met() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.before == nil && h.after == nil && h.fails == 0
}

// hookedPostgres opens a pool on the schema whose statements meet the hook.
func hookedPostgres(t *testing.T, s postgresSchema) (*sql.DB, *hook) {
	t.Helper()
	cfg, err := pgx.ParseConfig(s.with(t))
	if err != nil {
		t.Fatal(err)
	}
	return hooked(t, stdlib.GetConnector(*cfg))
}

// hookedMySQL opens a pool on the database whose statements meet the hook.
func hookedMySQL(t *testing.T, d mysqlDatabase) (*sql.DB, *hook) {
	t.Helper()
	return hooked(t, d.connector(t))
}

// hookedSQLite opens a pool on the file whose statements meet the hook.
func hookedSQLite(t *testing.T, file string) (*sql.DB, *hook) {
	t.Helper()
	return hooked(t, sqliteConnector{dsn: sqliteDSN(file)})
}

type sqliteConnector struct{ dsn string }

func (c sqliteConnector) Connect(context.Context) (driver.Conn, error) {
	return c.Driver().Open(c.dsn)
}

func (sqliteConnector) Driver() driver.Driver { return new(sqlite.Driver) }

func hooked(t *testing.T, c driver.Connector) (*sql.DB, *hook) {
	h := new(hook)
	db := sql.OpenDB(&hookConnector{c, h})
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	t.Cleanup(func() { db.Close() })
	return db, h
}

type hookConnector struct {
	driver.Connector
	hook *hook
}

func (c *hookConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &hookConn{conn.(wholeConn), c.hook}, nil
}

// A wholeConn has all methods of the drivers' connections.
type wholeConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
}

type hookConn struct {
	wholeConn
	hook *hook
}

func (c *hookConn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.wholeConn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// Prepare is called by the SQLite store. Its statements are recorded, and the hook is not called for them.
func (c *hookConn) Prepare(text string) (driver.Stmt, error) {
	c.hook.mu.Lock()
	c.hook.direct = append(c.hook.direct, text)
	c.hook.mu.Unlock()
	return c.wholeConn.Prepare(text)
}

func (c *hookConn) PrepareContext(ctx context.Context, text string) (driver.Stmt, error) {
	st, err := c.wholeConn.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	return &hookStmt{st.(wholeStmt), text, c.hook}, nil
}

func (c *hookConn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	c.hook.note(&c.hook.changed, text, args)
	if err := c.hook.send(text); err != nil {
		return nil, err
	}
	res, err := c.wholeConn.ExecContext(ctx, text, args)
	return res, cmp.Or(err, c.hook.answer(text))
}

func (c *hookConn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	c.hook.meet(text)
	c.hook.note(&c.hook.asked, text, args)
	return c.wholeConn.QueryContext(ctx, text, args)
}

type wholeStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

type hookStmt struct {
	wholeStmt
	text string
	hook *hook
}

func (s *hookStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if err := s.hook.send(s.text); err != nil {
		return nil, err
	}
	res, err := s.wholeStmt.ExecContext(ctx, args)
	return res, cmp.Or(err, s.hook.answer(s.text))
}

func (s *hookStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	s.hook.meet(s.text)
	return s.wholeStmt.QueryContext(ctx, args)
}
