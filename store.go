package onlyonce

import (
	"bytes"
	"context"
	"iter"
	"time"
)

// A Store keeps records. Every method is one atomic step at the store, by the
// store's own clock: durations go in, instants never do. A call that is
// repeated because its answer was lost is recognised by its Owner and has the
// effect of one. An error that is none of this package's means that the store
// could not be reached; whether the call took effect is then not known, and it
// may be repeated. What a returned Record holds is not to be modified.
//
// A settled record that has expired is treated as absent by every method, but
// for its fence.
type Store interface {
	// Claim asks for the right to run a command. It returns the record as it
	// now stands: the command is the caller's exactly if Record.Owner is
	// Claim.Owner. A record that the claim does not take (see Claim.Takes) is
	// not changed, its lease included.
	Claim(ctx context.Context, c Claim) (Record, error)

	// Renew makes the hold's lease end a full lease from now and adds steps to
	// the record's. It returns ErrLost unless the hold is the record's and the
	// record is processing.
	Renew(ctx context.Context, h Hold, lease time.Duration, steps map[string][]byte) error

	// Settle ends the attempt. It returns ErrLost unless the hold is the
	// record's. A lease that lapsed does not matter as long as nobody took
	// over. Settling again with the same hold changes nothing and is no error,
	// but for a release, after which there is no record.
	Settle(ctx context.Context, h Hold, s Settlement) error

	// Lookup returns the record of id, or ErrNotFound.
	Lookup(ctx context.Context, id ID) (Record, error)
}

// A Claim asks a store for the right to run a command.
type Claim struct {
	ID          ID
	Owner       string // 16 random bytes, new for every claim
	Fingerprint []byte // nil: not compared
	Lease       time.Duration
	RetryFailed bool // take a command that failed, unless the failure is final
	TakeUnknown bool // take a command whose outcome is unknown or whose lease has lapsed
}

// Takes reports whether the claim takes over r, a record that is there and has
// not expired. A store that takes a record gives it the claim's owner and
// lease, counts the attempt, makes its fence higher than the last and than
// the store's clock in microseconds, and keeps its fingerprint (the claim's, if
// it has none), its steps and its error.
func (c Claim) Takes(r Record) bool {
	if r.Owner == c.Owner || !sameFingerprint(c.Fingerprint, r.Fingerprint) {
		return false
	}
	switch r.State {
	case StateProcessing:
		return r.LeaseLeft <= 0 && c.TakeUnknown
	case StateUnknown:
		return c.TakeUnknown
	case StateFailed:
		return c.RetryFailed && !r.Final
	}
	return false
}

func sameFingerprint(a, b []byte) bool {
	return a == nil || b == nil || bytes.Equal(a, b)
}

// A Hold is the proof of a claim that was given.
type Hold struct {
	ID    ID
	Owner string
	Fence int64
}

// A Transactor runs a caller's function and the record's change as one
// transaction of the store's database: both happen, or neither.
type Transactor[TX any] interface {
	// RunTx claims, runs and settles in one transaction. If the claim is not
	// given, fn does not run and the record is returned as it stands; while
	// another RunTx on the ID runs, that is a processing record.
	//
	// Otherwise fn gets the transaction and the record as claimed. When it
	// returns no error, what it wrote and the settlement are committed
	// together. When it returns an error, what it wrote is rolled back, the
	// settlement, unless it is zero, is recorded alone, and the error is
	// returned as it is. When it panics, everything is rolled back, nothing is
	// recorded, and the panic goes on. ctx bounds the wait for fn's turn; a
	// transaction that has begun does not heed its end. fn may run more than once if the
	// database asks for it; all but the last run were rolled back. fn must not
	// end the transaction.
	RunTx(ctx context.Context, c Claim, fn func(ctx context.Context, tx TX, r Record) (Settlement, error)) (Record, error)

	// SettleTx runs fn and settles a claim made before in one transaction. It
	// returns ErrLost, and rolls back, unless the hold is the record's and the
	// record is processing. What fn returns means what it means to
	// RunTx, but a panic, or an error with a zero settlement, leaves the claim
	// as it is.
	SettleTx(ctx context.Context, h Hold, fn func(ctx context.Context, tx TX) (Settlement, error)) error
}

// A Purger deletes expired records.
type Purger interface {
	// Purge deletes at most limit records that have expired and returns how
	// many it deleted. It never deletes one that is processing.
	Purge(ctx context.Context, limit int) (int, error)
}

// A Lister lists records, newest first.
type Lister interface {
	List(ctx context.Context, f Filter) iter.Seq2[Record, error]
}

// A Filter says which records to list; a zero field means any.
type Filter struct {
	Tenant, Operation, Key, Ref string
	State                       State
	After                       Record // the last record of the page before; its ID and CreatedAt count
	Limit                       int    // 0: all
}

// A Waiter knows when a record changes.
type Waiter interface {
	// Wait returns when the record of id may have changed, or ctx has ended.
	Wait(ctx context.Context, id ID) error
}

// A Diagnoser finds settings of a store that would break the promise.
type Diagnoser interface {
	Diagnose(ctx context.Context) ([]Finding, error)
}

// A Finding is a setting that would break the promise.
type Finding struct {
	Name    string // stable: a risk is accepted by it
	Problem string // what is set, and what it would do
	Mend    string // the command or setting that mends it
}

func (f Finding) String() string { return f.Name + ": " + f.Problem + "; " + f.Mend }
