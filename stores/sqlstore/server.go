package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/transact"
)

// A server is a store on a database server. Every step is one statement, which
// commits by itself and decides by the server's clock.
type server struct {
	db       *sql.DB
	dialect  dialect
	risks    []string
	prepared map[string]*sql.Stmt // by name
	groups   *groups              // nil: nothing goes in groups
	hints    record.Hints
	inside   runningTx
	covered  covered
}

// A dialect is what one kind of server does differently.
type dialect interface {
	engine() string // as Migrations names it
	version(ctx context.Context, on rowQuerier) (int, error)
	statements() map[string]string
	decode(values []driver.Value) stored                               // a row of the lookup and list statements
	encodeText(s string) any                                           // a text column's value
	list(f onlyonce.Filter, before position) (text string, args []any) // the statement that reads a page
	classify(err error) errorClass                                     // what a statement's error means
	diagnose(l serverSession) ([]onlyonce.Finding, error)

	// purge looks at no more than limit rows that are due, and deletes them but for
	// those that are in use; among the deleted are so many records.
	purge(l serverSession, limit int) (rows, records int, err error)

	// lapse releases at most limit records whose leases have lapsed and whose
	// keep has passed since, and returns how many. Their rows stay for a while,
	// for their fences.
	lapse(l serverSession, limit int) (int, error)

	// give runs a statement that gives a hold, and returns its fence.
	give(l serverSession, name string, args []any) (fence int64, given bool, err error)

	// begin begins a transaction, with the locks unless they are nil; got is
	// one of the Lock outcomes of transact. end gives the locks back.
	begin(ctx context.Context, conn *sql.Conn, locks *transact.Locks, token []byte) (tx *sql.Tx, got string, err error)
	end(conn *sql.Conn, locks *transact.Locks, token []byte)

	// look reads the key's row and the store's clock.
	look(l serverSession, k *key, token []byte) (rowSnapshot, error)

	// ended waits on another connection until the transaction with the token has
	// ended.
	ended(ctx context.Context, conn *sql.Conn, token []byte) error

	// record writes the settled record of a transaction with its token, unless
	// the row is not the one seen any more. It returns errEnded if the transaction
	// is not the one that saw it.
	record(l serverSession, seen *rowSnapshot, r *onlyonce.Record, values []any, token []byte) (written bool, err error)

	// decision returns the arguments of the statements "resolve", with values,
	// and "remove", without: the record as it was seen, and its next owner.
	decision(values []any, owner []byte, seen ...any) []any

	// checkJoinable rejects a caller's transaction that has ended.
	checkJoinable(l serverSession) error

	// checkPacketSize rejects arguments that are too large for a statement.
	checkPacketSize(args []any) error

	// durable returns once a settled record that was read, outside a
	// transaction, survives a crash of the server.
	durable(l serverSession, k *key, r *stored) error

	// settled notes that the server has confirmed a settlement.
	settled(k *key, fence int64)

	// checkSameTx returns errEnded unless the transaction is still the one with the token, which took the snapshot.
	checkSameTx(l serverSession, seen *rowSnapshot, token []byte) error
}

// A rowSnapshot is a command's row as a transaction saw it.
type rowSnapshot struct {
	row        *stored // nil: there is none
	token      []byte  // of the transaction that settled it last
	now, floor int64
	mark       int64 // of the transaction; 0: none
}

// Trouble is what an error of the database means.
type errorClass int

const (
	classOther    errorClass = iota
	classConflict            // the transaction was rolled back for the sake of another: it may be run again
	classAborted             // an earlier statement of the transaction failed
	classTimeout             // it took longer than the database's settings allow
	classTooLarge            // a value does not fit
	classReadOnly            // nothing can be written here
	classRefused             // the server understood and did not do it
)

var (
	errConflict  = errors.New("the database ended the transaction to resolve a deadlock or a conflict: roll it back and run it again")
	errAborted   = errors.New("a statement of the transaction failed before: roll it back, and return the database's errors from the function")
	errTimeout   = errors.New("it took longer than the database's settings for statements and locks allow, and nothing was written: raise them, or ask again")
	errTooLarge  = errors.New("a value is larger than the database takes, and nothing was written: store less, or raise the database's limit")
	errReadOnly  = errors.New("the database can't be written: connect to the primary, not to a replica")
	errContended = errors.New("other claims on the command came first every time")
)

// explain adds to an error of the database what to do about it.
func explain(t errorClass, err error) error {
	switch t {
	case classConflict:
		return fmt.Errorf("%w: %w: %w", onlyonce.ErrUnavailable, errConflict, err)
	case classAborted:
		return fmt.Errorf("%w: %w", errAborted, err)
	case classTimeout:
		return fmt.Errorf("%w: %w: %w", onlyonce.ErrUnavailable, errTimeout, err)
	case classTooLarge:
		return fmt.Errorf("%w: %w", errTooLarge, err)
	case classReadOnly:
		return fmt.Errorf("%w: %w: %w", onlyonce.ErrUnavailable, errReadOnly, err)
	}
	return err
}

// A serverSession runs statements on the pool or in a transaction.
type serverSession struct {
	*server
	ctx context.Context
	tx  *sql.Tx // nil: the pool
}

func (s *server) line(ctx context.Context) serverSession { return serverSession{server: s, ctx: ctx} }

// exec runs a statement. What the database rolled back to resolve a conflict is
// run again, but not in a transaction.
func (l serverSession) exec(name string, args ...any) (res sql.Result, err error) {
	if err := l.dialect.checkPacketSize(args); err != nil {
		return nil, err
	}
	err = l.again(func() (err error) {
		if st := l.prepare(name); st != nil {
			res, err = st.ExecContext(l.ctx, args...)
			return err
		}
		res, err = l.on().ExecContext(l.ctx, l.dialect.statements()[name], args...)
		return err
	})
	return res, err
}

// change runs a statement and says how many rows it changed.
func (l serverSession) change(name string, args ...any) (int64, error) {
	res, err := l.exec(name, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// query runs a statement and calls row for every row once all of it is done: a
// statement may return rows, and then fail to commit.
func (l serverSession) query(name string, row func([]driver.Value) error, args ...any) error {
	var found [][]driver.Value
	err := l.again(func() (err error) {
		found = found[:0]
		var rows *sql.Rows
		if st := l.prepare(name); st != nil {
			rows, err = st.QueryContext(l.ctx, args...)
		} else {
			rows, err = l.on().QueryContext(l.ctx, l.dialect.statements()[name], args...)
		}
		if err != nil {
			return err
		}
		return scan(rows, func(values []driver.Value) error {
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

func (l serverSession) on() querier {
	if l.tx != nil {
		return l.tx
	}
	return l.db
}

// prepare returns the pool's statement, or nil if it has none.
func (l serverSession) prepare(name string) *sql.Stmt {
	st := l.prepared[name]
	if st != nil && l.tx != nil {
		return l.tx.StmtContext(l.ctx, st)
	}
	return st
}

// prepareAll prepares the statements now: a caller in a transaction has
// a connection already and must not wait for another.
func (s *server) prepareAll(ctx context.Context, names ...string) (err error) {
	s.prepared = make(map[string]*sql.Stmt, len(names))
	for _, name := range names {
		if s.prepared[name], err = s.db.PrepareContext(ctx, s.dialect.statements()[name]); err != nil {
			return errors.Join(err, s.close())
		}
	}
	return nil
}

// maxConflicts is how often what the database rolled back is run again: about
// half a second, with the pauses.
const maxConflicts = 30

// again repeats a step that the database rolled back to resolve a conflict.
func (l serverSession) again(f func() error) error {
	for n := 1; ; n++ {
		err := f()
		if err == nil {
			return nil
		}
		what := l.dialect.classify(err)
		if what != classConflict || l.tx != nil || n == maxConflicts || !pause(l.ctx, n) {
			return explain(what, err)
		}
	}
}

func (s *server) close() error {
	s.groups.close()
	var errs []error
	for _, st := range s.prepared {
		if st != nil {
			errs = append(errs, st.Close())
		}
	}
	return errors.Join(errs...)
}

func (s *server) claim(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
	k := keyOf(c.ID)
	if r := s.seen(ctx, &k); r != nil && !c.Takes(r.Record) && r.Owner != c.Owner {
		return r.Record, nil
	}
	r, err := s.claimNew(ctx, &k, &c)
	if err == nil {
		s.hints.Add(&k.hash)
	}
	return r, err
}

// claimNew claims a command that is probably new.
func (s *server) claimNew(ctx context.Context, k *key, c *onlyonce.Claim) (onlyonce.Record, error) {
	together, done := s.groups.grouped(k)
	defer done()
	if together {
		return s.claimInGroup(ctx, k, c)
	}
	return s.line(ctx).claim(k, c)
}

// seen returns a record that this process saw before; nil says nothing.
func (s *server) seen(ctx context.Context, k *key) *stored {
	if !s.hints.Has(&k.hash) {
		return nil
	}
	r, err := s.line(ctx).find(k)
	if err != nil || r == nil || r.Expired {
		return nil
	}
	return r
}

func (s *server) renew(ctx context.Context, h onlyonce.Hold, lease time.Duration, steps map[string][]byte) error {
	return s.line(ctx).renew(h, lease, steps)
}

func (s *server) settle(ctx context.Context, h onlyonce.Hold, st onlyonce.Settlement) error {
	k := keyOf(h.ID)
	together, done := s.groups.grouped(&k)
	defer done()
	if together && groupable(&st) {
		return s.settleInGroup(ctx, &k, &h, &st)
	}
	return s.line(ctx).settle(h, st, false)
}

func (s *server) lookup(ctx context.Context, id onlyonce.ID) (onlyonce.Record, error) {
	return s.line(ctx).lookup(id)
}

// page reads the records of f but for its state, which only a record that has
// been decoded has.
func (s *server) page(ctx context.Context, f onlyonce.Filter, before position) (page []stored, err error) {
	l := s.line(ctx)
	text, args := s.dialect.list(f, before)
	err = l.again(func() error {
		page = page[:0]
		rows, err := s.db.QueryContext(ctx, text, args...)
		if err != nil {
			return err
		}
		return scan(rows, func(v []driver.Value) error {
			page = append(page, s.dialect.decode(v))
			return nil
		})
	})
	return page, err
}

func (s *server) diagnose(ctx context.Context) ([]onlyonce.Finding, error) {
	return s.dialect.diagnose(s.line(ctx))
}
