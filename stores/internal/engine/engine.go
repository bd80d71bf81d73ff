// Package engine contains the code that sqlstore and its engines share: the interfaces of an
// engine and of its outbox, the statements that are the same on several databases, and
// the common handling of findings, versions of the schema, rows, and calls
// that come after it was closed. Stores that are not SQL databases take from it how
// findings are accepted as risks.
package engine

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// An Engine is a store on one kind of database. Its errors do not name the operation,
// except those of RunTx and SettleTx.
type Engine interface {
	onlyonce.Store
	Reader
	Outbox

	// Resolve does what onlyonce.Resolver says or, unless d is nil, what
	// onlyonce.Auditor says of ResolveAudited.
	Resolve(ctx context.Context, seen onlyonce.Record, st onlyonce.Settlement, d *onlyonce.Decision) error

	// Purge, Unresolved and Diagnose do what onlyonce's interfaces of these names say.
	Purge(ctx context.Context, limit int) (int, error)
	Unresolved(ctx context.Context) (n int, oldest time.Duration, err error)
	Diagnose(ctx context.Context) ([]onlyonce.Finding, error)

	// Joined returns the store inside the caller's transaction.
	Joined(tx *sql.Tx) onlyonce.Store

	// RunTx and SettleTx return an error of fn as it is. Their own errors begin with
	// doing, which says what the caller of the store asked for.
	RunTx(ctx context.Context, doing string, c onlyonce.Claim, fn TxFunc) (onlyonce.Record, error)
	SettleTx(ctx context.Context, doing string, h onlyonce.Hold, fn TxFunc) error

	// Close ends queued calls and releases the engine's connections and statements.
	Close() error
}

// A Reader is the part of an engine that only reads, which takes no other right.
type Reader interface {
	// Page reads a page of a list. It does not filter by the state of f, which only a
	// decoded record has.
	Page(ctx context.Context, f onlyonce.Filter, p *record.Page) error

	// AuditTrail and CountRecords do what onlyonce.Auditor and onlyonce.Counter say.
	AuditTrail(ctx context.Context, id onlyonce.ID) ([]onlyonce.AuditEntry, error)
	CountRecords(ctx context.Context) ([]onlyonce.RecordCount, error)
}

// A TxFunc is a caller's function; SettleTx gives it no record.
type TxFunc = func(ctx context.Context, tx *sql.Tx, r onlyonce.Record) (onlyonce.Settlement, error)

// An Outbox runs the statements of the outbox.
type Outbox interface {
	// OutboxIn returns a runner in the caller's transaction.
	OutboxIn(ctx context.Context, tx *sql.Tx) (Runner, error)

	// OutboxRead returns a runner outside any transaction.
	OutboxRead(ctx context.Context) Runner

	// OutboxWrite runs f in a transaction. With alone, f has the whole queue to itself. f
	// may run again if the database rolls the transaction back.
	OutboxWrite(ctx context.Context, alone bool, f func(Runner) error) error
}

// Reconnect bounds the wait for a connection in place of a broken one.
const Reconnect = 5 * time.Second

// The errors of a missing row without which a store would run a command a second time, or
// two relays would publish one message.
var (
	ErrNoFence      = errors.New("the table onlyonce_fence was emptied: restore its row, or INSERT INTO onlyonce_fence (one, floor) VALUES (1, 0)")
	ErrNoOutboxLock = errors.New("the table onlyonce_outbox_lock was emptied: INSERT INTO onlyonce_outbox_lock (one) VALUES (1)")
)
