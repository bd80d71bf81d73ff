// Package server is the store on a database server over database/sql, whatever server
// it is. What one kind of server does differently is its Dialect.
package server

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/transact"
)

// A Store is a store on a database server. Every step is one statement, which
// commits by itself and decides by the server's clock.
type Store struct {
	DB       *sql.DB
	Encode   TextEncoder // the dialect's
	dialect  Dialect
	risks    []string
	prepared map[string]*sql.Stmt // by name
	groups   *groups              // nil: nothing goes in groups
	hints    record.Hints
	inside   transact.RunningTx
	covered  covered
}

// New returns a store that has not been checked. Its Open can be told to accept
// the risks.
func New(db *sql.DB, d Dialect, risks []string) *Store {
	return &Store{DB: db, Encode: d.EncodeText, dialect: d, risks: risks}
}

// A Dialect is what one kind of server does differently.
type Dialect interface {
	Schema() int // the version of the schema that the statements need
	Version(ctx context.Context, on engine.RowQuerier) (int, error)
	Statements() map[string]string
	Decode(values []driver.Value) record.Stored                       // a row of the lookup and list statements
	EncodeText(s string) any                                          // a text column's value
	List(f onlyonce.Filter, p *record.Page) (text string, args []any) // the statement that reads a page
	Classify(err error) ErrorClass                                    // what a statement's error means
	Diagnose(l Session) ([]onlyonce.Finding, error)

	// Purge looks at no more than limit rows that are due, and deletes them but for
	// those that are in use; among the deleted are so many records.
	Purge(l Session, limit int) (rows, records int, err error)

	// Lapse releases at most limit records whose leases have lapsed and whose
	// keep has passed since, and returns how many. Their rows stay for a while,
	// for their fences.
	Lapse(l Session, limit int) (int, error)

	// Claim runs "claim", or "claim in" in a transaction, and returns the hold's fence.
	Claim(l Session, a ClaimArgs) (fence int64, given bool, err error)

	// Give runs another statement that gives a hold, and returns its fence.
	Give(l Session, name string, args []any) (fence int64, given bool, err error)

	// Begin begins a transaction, with the locks unless they are nil; got is
	// one of the Lock outcomes of transact. End gives the locks back.
	Begin(ctx context.Context, conn *sql.Conn, locks *transact.Locks, token []byte) (tx *sql.Tx, got string, err error)
	End(conn *sql.Conn, locks *transact.Locks, token []byte)

	// Look reads the key's row and the store's clock.
	Look(l Session, k *record.Key, token []byte) (transact.View, error)

	// Ended waits on another connection until the transaction with the token has
	// ended.
	Ended(ctx context.Context, conn *sql.Conn, token []byte) error

	// Record writes the settled record of a transaction with its token, unless
	// the row is not the one seen any more. It returns transact.ErrEnded if the transaction
	// is not the one that saw it.
	Record(l Session, seen *transact.View, k *record.Key, r *onlyonce.Record, settled SettledArgs, token []byte) (written bool, err error)

	// Decision lists the arguments of the statement "resolve", or of "remove" if the
	// decision deletes the record: the record as it was seen, and its next owner.
	Decision(settled SettledArgs, seen SeenArgs, owner []byte) []any

	// CheckJoinable rejects a caller's transaction that has ended.
	CheckJoinable(l Session) error

	// CheckPacketSize rejects arguments that are too large for a statement.
	CheckPacketSize(args []any) error

	// Durable returns once a settled record that was read, outside a
	// transaction, survives a crash of the server.
	Durable(l Session, k *record.Key, r *record.Stored) error

	// Settled notes that the server has confirmed a settlement.
	Settled(k *record.Key, fence int64)

	// CheckSameTx returns transact.ErrEnded unless the transaction is still the one with the token, which took the snapshot.
	CheckSameTx(l Session, seen *transact.View, token []byte) error
}

// An ErrorClass is what an error of the database means.
type ErrorClass int

// The classes of errors.
const (
	ClassOther    ErrorClass = iota
	ClassConflict            // the transaction was rolled back for the sake of another: it may be run again
	ClassAborted             // an earlier statement of the transaction failed
	ClassTimeout             // it took longer than the database's settings allow
	ClassTooLarge            // a value does not fit
	ClassReadOnly            // nothing can be written here
	ClassRefused             // the server understood and did not do it
)

// Repeated says what an error of the class means for a call that may be repeated.
func (c ErrorClass) Repeated() transact.Class {
	switch c {
	case ClassConflict:
		return transact.Conflict
	case ClassOther, ClassTimeout:
		return transact.Temporary
	}
	return transact.Permanent
}

// What the errors of a class mean.
var (
	errConflict  = errors.New("the database ended the transaction to resolve a deadlock or a conflict: roll it back and run it again")
	errAborted   = errors.New("a statement of the transaction failed before: roll it back, and return the database's errors from the function")
	errTimeout   = errors.New("it took longer than the database's settings for statements and locks allow, and nothing was written: raise them, or ask again")
	ErrTooLarge  = errors.New("a value is larger than the database takes, and nothing was written: store less, or raise the database's limit")
	errReadOnly  = errors.New("the database can't be written: connect to the primary, not to a replica")
	errContended = errors.New("other claims on the command came first every time")
)

// explain adds to an error of the database what to do about it.
func explain(t ErrorClass, err error) error {
	switch t {
	case ClassConflict:
		return fmt.Errorf("%w: %w: %w", onlyonce.ErrUnavailable, errConflict, err)
	case ClassAborted:
		return fmt.Errorf("%w: %w", errAborted, err)
	case ClassTimeout:
		return fmt.Errorf("%w: %w: %w", onlyonce.ErrUnavailable, errTimeout, err)
	case ClassTooLarge:
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	case ClassReadOnly:
		return fmt.Errorf("%w: %w: %w", onlyonce.ErrUnavailable, errReadOnly, err)
	}
	return err
}

// AnswerTimeout bounds how long the server may take over a group of writes, or over one of
// the store's own steps in the transaction of a function: a server that does not answer
// for so long can't be reached.
const AnswerTimeout = 15 * time.Second

// A Session runs statements on the pool or in a transaction.
type Session struct {
	*Store
	Ctx context.Context
	Tx  *sql.Tx // nil: the pool
}

func (s *Store) Session(ctx context.Context) Session { return Session{Store: s, Ctx: ctx} }

// Exec runs a statement. What the database rolled back to resolve a conflict is
// run again, but not in a transaction.
func (l Session) Exec(name string, args ...any) (res sql.Result, err error) {
	if err := l.dialect.CheckPacketSize(args); err != nil {
		return nil, err
	}
	err = l.Again(func() (err error) {
		if st := l.prepare(name); st != nil {
			res, err = st.ExecContext(l.Ctx, args...)
			return err
		}
		res, err = l.on().ExecContext(l.Ctx, l.dialect.Statements()[name], args...)
		return err
	})
	return res, err
}

// Change runs a statement and says how many rows it changed.
func (l Session) Change(name string, args ...any) (int64, error) {
	res, err := l.Exec(name, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// Query runs a statement and calls row for every row once all of it is done: a
// statement may return rows, and then fail to commit.
func (l Session) Query(name string, row func([]driver.Value) error, args ...any) error {
	var found [][]driver.Value
	err := l.Again(func() (err error) {
		found = found[:0]
		var rows *sql.Rows
		if st := l.prepare(name); st != nil {
			rows, err = st.QueryContext(l.Ctx, args...)
		} else {
			rows, err = l.on().QueryContext(l.Ctx, l.dialect.Statements()[name], args...)
		}
		if err != nil {
			return err
		}
		return engine.Scan(rows, func(values []driver.Value) error {
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

func (l Session) on() engine.Querier {
	if l.Tx != nil {
		return l.Tx
	}
	return l.DB
}

// prepare returns the pool's statement, or nil if it has none.
func (l Session) prepare(name string) *sql.Stmt {
	st := l.prepared[name]
	if st != nil && l.Tx != nil {
		return l.Tx.StmtContext(l.Ctx, st)
	}
	return st
}

// PrepareAll prepares the statements now: a caller in a transaction has
// a connection already and must not wait for another.
func (s *Store) PrepareAll(ctx context.Context, names ...string) (err error) {
	s.prepared = make(map[string]*sql.Stmt, len(names))
	for _, name := range names {
		if s.prepared[name], err = s.DB.PrepareContext(ctx, s.dialect.Statements()[name]); err != nil {
			return errors.Join(err, s.Close())
		}
	}
	return nil
}

// maxConflicts is how often what the database rolled back is run again: about
// half a second, with the pauses.
const maxConflicts = 30

// Again repeats a step that the database rolled back to resolve a conflict.
func (l Session) Again(f func() error) error {
	for n := 1; ; n++ {
		err := f()
		if err == nil {
			return nil
		}
		what := l.dialect.Classify(err)
		if what != ClassConflict || l.Tx != nil || n == maxConflicts || !pause(l.Ctx, n) {
			return explain(what, err)
		}
	}
}

func (s *Store) Close() error {
	s.groups.close()
	var errs []error
	for _, st := range s.prepared {
		if st != nil {
			errs = append(errs, st.Close())
		}
	}
	return errors.Join(errs...)
}

func (s *Store) Claim(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
	k := record.KeyOf(c.ID)
	if r := s.seen(ctx, &k); r.Answers(&c) && r.Owner != c.Owner {
		return r.Record, nil
	}
	r, err := s.claimNew(ctx, &k, &c)
	if err == nil {
		s.hints.Add(&k.Hash)
	}
	return r, err
}

// claimNew claims a command that is probably new.
func (s *Store) claimNew(ctx context.Context, k *record.Key, c *onlyonce.Claim) (onlyonce.Record, error) {
	together, done := s.groups.grouped(k)
	defer done()
	if together {
		return s.claimInGroup(ctx, k, c)
	}
	return s.Session(ctx).claim(k, c)
}

// seen returns a record that this process saw before; nil says nothing.
func (s *Store) seen(ctx context.Context, k *record.Key) *record.Stored {
	if !s.hints.Has(&k.Hash) {
		return nil
	}
	r, err := s.Session(ctx).find(k)
	if err != nil || r == nil || r.Expired {
		return nil
	}
	return r
}

func (s *Store) Renew(ctx context.Context, h onlyonce.Hold, lease time.Duration, steps map[string][]byte) error {
	return s.Session(ctx).renew(h, lease, steps)
}

func (s *Store) Settle(ctx context.Context, h onlyonce.Hold, st onlyonce.Settlement) error {
	k := record.KeyOf(h.ID)
	together, done := s.groups.grouped(&k)
	defer done()
	if together && groupable(&st) {
		return s.settleInGroup(ctx, &k, &h, &st)
	}
	return s.Session(ctx).settle(h, st, false)
}

func (s *Store) Lookup(ctx context.Context, id onlyonce.ID) (onlyonce.Record, error) {
	return s.Session(ctx).lookup(id)
}

// Page reads a page of the records of f but for its state, which only a record that has
// been decoded has.
func (s *Store) Page(ctx context.Context, f onlyonce.Filter, p *record.Page) error {
	l := s.Session(ctx)
	text, args := s.dialect.List(f, p)
	return l.Again(func() error {
		p.Clear()
		rows, err := s.DB.QueryContext(ctx, text, args...)
		if err != nil {
			return err
		}
		return engine.ScanPage(rows, p, s.dialect.Decode)
	})
}

func (s *Store) Diagnose(ctx context.Context) ([]onlyonce.Finding, error) {
	return s.dialect.Diagnose(s.Session(ctx))
}

// Discard gives up a connection whose transaction may be open.
func Discard(conn *sql.Conn, err error) error {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	return err
}
