package transact

import (
	"context"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// A Func is a caller's function. That of SettleTx gets the record as it was read.
type Func[TX any] = func(ctx context.Context, tx TX, r onlyonce.Record) (onlyonce.Settlement, error)

// A Command is the command that a function runs for, on its way through
// transactions. Either Claim or Hold is nil.
type Command struct {
	Key   record.Key
	Claim *onlyonce.Claim // of RunTx
	Hold  *onlyonce.Hold  // of SettleTx

	Token      []byte          // of the transaction: see Commit
	Seen       View            // the record as the transaction read it at its beginning
	Record     onlyonce.Record // as it was claimed, then as it was settled
	Settlement onlyonce.Settlement
}

// Locks returns the locks that the transaction takes, or nil if it takes none: a
// hold keeps others out by itself.
func (c *Command) Locks() *Locks {
	if c.Claim == nil {
		return nil
	}
	locks := LocksOf(c.Key.Hash, c.Claim.Fingerprint)
	return &locks
}

// A View holds the values that a transaction reads when it begins.
type View struct {
	Lock  string         // LockMine if it took the locks or takes none, otherwise LockBusy or LockOther
	Row   *record.Stored // nil: there is none
	Token []byte         // of the transaction that settled the row last; nil: none did
	Now   int64          // the store's clock, in microseconds
	Floor int64          // no row with a higher fence was ever deleted
	Mark  int64          // tells the transaction from the next one on its connection; 0: nothing does
}

// A Transactor begins the transactions of a store and does what they need outside of
// them. Except for Begin, no method waits longer than its ctx.
type Transactor[TX any] interface {
	// Begin begins a transaction on a connection of its own, in which the lock named
	// by c.Token is held until it ends, and sets c.Seen. ctx limits only the wait for
	// the connection.
	Begin(ctx context.Context, c *Command) (Tx[TX], error)

	// BeginAlone begins a transaction that only records c.Settlement. It sees no
	// row, and holds the lock named by c.Token if its commit can be in doubt.
	BeginAlone(ctx context.Context, c *Command) (Tx[TX], error)

	// Settle settles c.Hold with c.Settlement, without rows of a function.
	Settle(ctx context.Context, c *Command) error

	// Trace returns the traces of the transaction with c.Token once it has ended.
	Trace(ctx context.Context, c *Command) (Trace, error)

	// Durable returns once c.Seen.Row survives a crash of the server, and reports whether
	// it does: not if the row has changed, or another server, without it, has taken over.
	Durable(ctx context.Context, c *Command) (bool, error)

	// Flushed returns once everything that was read survives a crash of the server that it
	// was read from, which has the name of its Trace. It reports true if that must be read again,
	// because another server may have taken over.
	Flushed(ctx context.Context, c *Command, from int64) (again bool, err error)

	// KeepFence makes every later fence of the command higher than fence: by a row
	// if there is none, otherwise by the floor.
	KeepFence(ctx context.Context, c *Command, fence int64) error

	// Classify returns the class of an error of the database.
	Classify(err error) Class
}

// A Tx is a transaction that has begun.
type Tx[TX any] interface {
	// Handle returns the transaction that is passed to the function.
	Handle() TX

	// Commit writes c.Settlement, or releases the command if it is zero, and
	// commits. It writes over the row of c.Seen as it was read, or nothing. settledAt
	// is the SettledAt of the record that a claim left, in microseconds; it is not
	// used for a hold.
	Commit(ctx context.Context, c *Command) (settledAt int64, o Outcome, err error)

	// Close rolls back a transaction that is not committed, and gives the connection back. Closing
	// twice does nothing.
	Close(ctx context.Context)
}

// An Outcome is the result of a transaction that was to be committed.
type Outcome int

const (
	InDoubt    Outcome = iota // COMMIT may have been executed
	Committed                 // the server said so
	RolledBack                // it is not committed, and won't be
	Overtaken                 // rolled back, because the row is not as it was read
	Ended                     // the function had ended it before
)

// A Class is the meaning of a database's error for a call that may be repeated.
type Class int

const (
	Permanent Class = iota // the same call would fail again
	Conflict               // the server rolled the transaction back for the sake of another
	Broken                 // the connection broke: another one may work
	Temporary              // the server can't do it now, or did not respond in time
)
