package integration

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"path/filepath"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
	"github.com/onlyonce-go/onlyonce/stores/storetest"
)

func TestLostCommit_SQLiteKnowsItsLostCommits(t *testing.T) {
	storetest.RunLostCommits(t, func(t *testing.T) storetest.LossyTx[*sql.Tx] {
		file := filepath.Join(t.TempDir(), "records.db")
		tx, db := newSQLiteTx(t, file)
		return lossyTx(t, tx, &lossyConnector{open: func(ctx context.Context) (driver.Conn, error) {
			return db.Driver().Open(sqliteDSN(file))
		}, driver: db.Driver(), loss: errBroken, staysOpen: true})
	})
}

func TestLostCommit_PostgresKnowsItsLostCommits(t *testing.T) {
	schema := newPostgresSchema(t)
	elsewhere, db := schema.open(t)
	tx := schema.tx(t, elsewhere, db)
	cfg, err := pgx.ParseConfig(schema.with(t))
	if err != nil {
		t.Fatal(err)
	}
	eachLoss(t, &pgconn.PgError{Code: "57014", Message: "canceling statement due to user request"}, func(t *testing.T, loss error) {
		storetest.RunLostCommits(t, func(t *testing.T) storetest.LossyTx[*sql.Tx] {
			emptied(t, db, "onlyonce_records", "own")
			c := stdlib.GetConnector(*cfg)
			return lossyTx(t, tx, &lossyConnector{open: c.Connect, driver: c.Driver(), loss: loss})
		})
	})
}

// eachLoss tests with a connection that breaks, and with one that a pooler ends
// with a response of its own.
func eachLoss(t *testing.T, answer error, f func(t *testing.T, loss error)) {
	t.Run("no response", func(t *testing.T) { f(t, errBroken) })
	t.Run("another answer", func(t *testing.T) { f(t, answer) })
}

func TestLostCommit_MySQLKnowsItsLostCommits(t *testing.T) {
	d := newMySQLDatabase(t)
	elsewhere, db := d.open(t)
	tx := d.tx(t, elsewhere, db)
	c := d.connector(t)
	eachLoss(t, &mysql.MySQLError{Number: 1317, Message: "Query execution was interrupted"}, func(t *testing.T, loss error) {
		storetest.RunLostCommits(t, func(t *testing.T) storetest.LossyTx[*sql.Tx] {
			emptied(t, db, "onlyonce_records", "own")
			return lossyTx(t, tx, &lossyConnector{open: c.Connect, driver: c.Driver(), loss: loss})
		})
	})
}

func TestLostCommit_WithoutTheFloorNoCommitIsTakenForARollback(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) (storetest.Tx[*sql.Tx], *sql.DB, *lossyConnector){
		"PostgreSQL": func(t *testing.T) (storetest.Tx[*sql.Tx], *sql.DB, *lossyConnector) {
			schema := newPostgresSchema(t)
			s, db := schema.open(t)
			cfg, err := pgx.ParseConfig(schema.with(t))
			if err != nil {
				t.Fatal(err)
			}
			c := stdlib.GetConnector(*cfg)
			return schema.tx(t, s, db), db, &lossyConnector{open: c.Connect, driver: c.Driver(), loss: errBroken}
		},
		"MySQL": func(t *testing.T) (storetest.Tx[*sql.Tx], *sql.DB, *lossyConnector) {
			d := newMySQLDatabase(t)
			s, db := d.open(t)
			c := d.connector(t)
			return d.tx(t, s, db), db, &lossyConnector{open: c.Connect, driver: c.Driver(), loss: errBroken}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tx, db, c := open(t)
			l := lossyTx(t, tx, c)
			l.LoseCommit(true, func() { emptied(t, db, "onlyonce_fence") })
			_, err := l.Store.(*sqlstore.Store).RunTx(t.Context(), serverClaim("k"), func(ctx context.Context, tx *sql.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
				return onlyonce.Settlement{State: onlyonce.StateCompleted}, l.Insert(ctx, tx, "made")
			})
			if !errors.Is(err, onlyonce.ErrInDoubt) {
				t.Errorf("RunTx: %v", err)
			}
			if n, err := l.Count(t.Context(), "made"); n != 1 || err != nil {
				t.Errorf("%d rows, error %v", n, err)
			}
		})
	}
}

// lossyTx opens the store of tx once more, on connections that lose commits.
func lossyTx(t *testing.T, tx storetest.Tx[*sql.Tx], c *lossyConnector) storetest.LossyTx[*sql.Tx] {
	t.Helper()
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	t.Cleanup(func() { db.Close() })
	l := storetest.LossyTx[*sql.Tx]{Tx: tx, Elsewhere: tx.Store, LoseCommit: c.loseCommit}
	s := openOn(t, db)
	l.Store = s
	return l
}

// A lossyConnector makes connections that break at the next commit of a
// transaction when they are asked to.
type lossyConnector struct {
	open      func(context.Context) (driver.Conn, error)
	driver    driver.Driver
	loss      error // the error of a lost commit
	staysOpen bool  // a commit fails without the connection

	mu        sync.Mutex
	arrives   bool
	meanwhile func() // nil: nothing breaks
}

func (c *lossyConnector) loseCommit(arrives bool, meanwhile func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.arrives, c.meanwhile = arrives, meanwhile
}

func (c *lossyConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	return &lossyConn{anyConn: conn.(anyConn), from: c}, nil
}

func (c *lossyConnector) Driver() driver.Driver { return c.driver }

// An anyConn has the methods of all drivers' connections.
type anyConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.SessionResetter
}

type lossyConn struct {
	anyConn
	from   *lossyConnector
	broken bool
}

func (c *lossyConn) CheckNamedValue(v *driver.NamedValue) error {
	if check, ok := c.anyConn.(driver.NamedValueChecker); ok {
		return check.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

func (c *lossyConn) IsValid() bool { return !c.broken }

func (c *lossyConn) ResetSession(ctx context.Context) error {
	if c.broken {
		return driver.ErrBadConn
	}
	return c.anyConn.ResetSession(ctx)
}

func (c *lossyConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := c.anyConn.BeginTx(ctx, opts)
	if err != nil {
		return nil, err
	}
	return &lossyTransaction{tx, c}, nil
}

type lossyTransaction struct {
	driver.Tx
	conn *lossyConn
}

var errBroken = errors.New("the connection broke")

func (tx *lossyTransaction) Commit() error {
	from := tx.conn.from
	from.mu.Lock()
	arrives, meanwhile := from.arrives, from.meanwhile
	from.meanwhile = nil
	from.mu.Unlock()
	if meanwhile == nil {
		return tx.Tx.Commit()
	}
	end := tx.Rollback
	if arrives {
		end = tx.Tx.Commit
	}
	if err := end(); err != nil {
		return err
	}
	if tx.conn.broken = true; !from.staysOpen {
		_ = tx.conn.Close()
	}
	meanwhile()
	return from.loss
}
