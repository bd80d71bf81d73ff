package server

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/transact"
)

// A Dialect implements the parts that differ from one kind of server to another.
type Dialect interface {
	Schema() int // the version of the schema that the statements need
	Statements() map[string]string
	Decode(values []driver.Value) record.Stored                       // a row of the lookup and list statements
	EncodeText(s string) any                                          // a text column's value
	DecodeText(s string) string                                       // undoes EncodeText for a value that was read
	List(f onlyonce.Filter, p *record.Page) (text string, args []any) // the statement that reads a page
	Classify(err error) ErrorClass                                    // of a statement's error
	Diagnose(l Runner) ([]onlyonce.Finding, error)

	// Purge looks at no more than limit rows that are due, and deletes those that are
	// not in use. It returns how many rows it looked at, and how many of the deleted
	// rows were records.
	Purge(l Runner, limit int) (rows, records int, err error)

	// Lapse releases at most limit records whose leases have lapsed and whose
	// keep has passed since, and returns how many. Their rows stay for a while,
	// for their fences.
	Lapse(l Runner, limit int) (int, error)

	// Forget deletes at most limit results that expire before their records, and returns
	// how many.
	Forget(l Runner, limit int) (int, error)

	// Claim runs "claim", or "claim in" in a transaction, and returns the hold's fence.
	Claim(l Runner, a ClaimArgs) (fence int64, granted bool, err error)

	// Grant runs another statement that grants a hold or raises its fence, and returns the
	// fence.
	Grant(l Runner, name string, args []any) (fence int64, granted bool, err error)

	// Begin begins a transaction and takes the locks unless they are nil; got is one of
	// the Lock outcomes of transact. End releases the locks.
	Begin(ctx context.Context, conn *sql.Conn, locks *transact.Locks, token []byte) (tx *sql.Tx, got string, err error)
	End(conn *sql.Conn, locks *transact.Locks, token []byte)

	// Look reads the key's row and the store's clock.
	Look(l Runner, k *record.Key, token []byte) (transact.View, error)

	// Ended waits on another connection until the transaction with the token has
	// ended.
	Ended(ctx context.Context, conn *sql.Conn, token []byte) error

	// Record writes the settled record of a transaction with its token, and returns when
	// it was settled, or 0 if the row is no longer the one seen. The error is
	// transact.ErrEnded if the transaction is not the one that saw it.
	Record(l Runner, seen *transact.View, k *record.Key, r *onlyonce.Record, settled SettledArgs, token []byte) (settledAt int64, err error)

	// Decision lists the arguments of the statement "resolve", or of "remove" if the
	// decision deletes the record: the record as it was seen, and its next owner.
	Decision(settled SettledArgs, seen SeenArgs, owner []byte) []any

	// Audited runs the statement "resolve" or "remove" with the arguments of a decision and,
	// in the same transaction, adds the entry to the audit trail if the statement changed a
	// row. It returns how many rows the statement changed.
	Audited(l Runner, name string, decision []any, entry AuditArgs) (changed int64, err error)

	// CheckJoinable rejects a caller's transaction that has ended.
	CheckJoinable(l Runner) error

	// CheckID rejects an ID that the table can't hold, before anything runs for it.
	CheckID(id onlyonce.ID) error

	// CheckPacketSize rejects arguments that are too large for a statement.
	CheckPacketSize(args []any) error

	// Durable returns once a settled record that was read, outside a transaction,
	// survives a crash of the server. It reports true if the record must be read again,
	// because another server may have taken the place of the one that had it.
	Durable(l Runner, k *record.Key, look Look) (again bool, err error)

	// Flushed returns once everything that was read, outside a transaction, survives a crash
	// of the server that it was read from, which has the name of record.Stored. It reports
	// true if that must be read again.
	Flushed(l Runner, from int64) (again bool, err error)

	// Settled notes that the server has confirmed a settlement.
	Settled(k *record.Key, fence int64)

	// CheckSameTx returns transact.ErrEnded unless the transaction is still the one
	// with the token, whose Look returned seen.
	CheckSameTx(l Runner, seen *transact.View, token []byte) error
}

// A Look is a read of a record, which may not be durable.
type Look struct {
	Found  *record.Stored // nil: there is none
	Before *record.Stored // the record as the store last read it; nil: it has not read it
}

// An ErrorClass is the meaning of a database's error.
type ErrorClass int

// The classes of errors.
const (
	ClassOther        ErrorClass = iota
	ClassConflict                // the transaction was rolled back for the sake of another: it may be run again
	ClassAborted                 // an earlier statement of the transaction failed
	ClassTimeout                 // it took longer than the database's settings allow
	ClassLeftOpen                // the transaction was idle for longer than the database's settings allow
	ClassTooLarge                // a value does not fit
	ClassReadOnly                // nothing can be written here
	ClassOtherCluster            // the server does not have this store
	ClassRejected                // the server understood the statement and did not execute it
)

// Repeated returns the consequence of an error of the class for a call that may be repeated.
func (c ErrorClass) Repeated() transact.Class {
	switch c {
	case ClassConflict:
		return transact.Conflict
	case ClassOther, ClassTimeout, ClassOtherCluster:
		return transact.Temporary
	}
	return transact.Permanent
}

// ErrTooLarge is the error of a value that the database does not take.
var ErrTooLarge = fmt.Errorf("%w: a value is larger than the database takes, and nothing was written: store less, or raise the database's limit", onlyonce.ErrTooLarge)

// ErrOtherCluster is the error of a call that has reached another store than the one that was
// opened.
var ErrOtherCluster = fmt.Errorf("%w: a server, database or schema other than the one on which the store was opened has responded (on PostgreSQL, setting another search_path looks the same), and nothing was written there: name only a primary and its replicas, and restart the program if the server was replaced on purpose", onlyonce.ErrUnavailable)

// meanings maps each class to an error that says what its errors mean and what to do about them.
var meanings = map[ErrorClass]error{
	ClassConflict:     fmt.Errorf("%w: the database ended the transaction to resolve a deadlock or a conflict: roll it back and run it again", onlyonce.ErrUnavailable),
	ClassAborted:      errors.New("a statement of the transaction failed before: roll it back, and return the database's errors from the function"),
	ClassTimeout:      fmt.Errorf("%w: it took longer than the database's settings for statements and locks allow, and nothing was written: raise them, or try again", onlyonce.ErrUnavailable),
	ClassLeftOpen:     errors.New("the transaction was idle for longer than the database's settings allow, and was rolled back: do less in it between statements, or raise them"),
	ClassTooLarge:     ErrTooLarge,
	ClassOtherCluster: ErrOtherCluster,
	ClassReadOnly:     fmt.Errorf("%w: the database can't be written: connect to the primary, not to a replica", onlyonce.ErrUnavailable),
}

// Explain adds an explanation to an error of the database.
func (s *Store) Explain(err error) error { return Explain(s.dialect.Classify(err), err) }

// Explain adds the meaning of a class to an error, unless the error already says it.
func Explain(t ErrorClass, err error) error {
	meaning := meanings[t]
	if meaning == nil || errors.Is(err, meaning) {
		return err
	}
	return fmt.Errorf("%w: %w", meaning, err)
}
