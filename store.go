package onlyonce

import (
	"context"
	"iter"
	"time"
)

// A Store keeps records. Every method is one atomic step at the store, by the
// store's own clock: durations go in, instants never do. A call that is
// repeated because its answer was lost is recognised by its Owner and has the
// effect of one. An error that is none of this package's means that the store
// could not be reached; whether the call took effect is then not known, and it
// may be repeated. ErrLost says that the call changed nothing: a store that sent
// a call twice by itself, and can't tell whether the first one arrived, returns
// another error. What a returned Record holds is not to be modified.
//
// A record that has expired is treated as absent by every method, but for its
// fence. A settled record expires when its Keep ends. A processing one whose
// claim has a Keep expires when that has passed since its lease lapsed, and never
// while its lease is alive.
type Store interface {
	// Claim asks for the right to run a command. A claim that Claim.Check
	// rejects is an error that changes nothing. Otherwise it returns the record as it
	// now stands: the command is the caller's exactly if Record.Owner is
	// Claim.Owner. A record that the claim does not take (see Claim.Takes) is
	// not changed, its lease included.
	Claim(ctx context.Context, c Claim) (Record, error)

	// Renew makes the hold's lease end a full lease from now and adds steps to
	// the record's. It returns ErrLost unless the hold is the record's and the
	// record is processing.
	Renew(ctx context.Context, h Hold, lease time.Duration, steps map[string][]byte) error

	// Settle ends the attempt. A settlement that Settlement.Check rejects is an
	// error that changes nothing. It returns ErrLost unless the hold is the
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
	Fingerprint []byte // what the record must have the same, if it has one

	// SkipFingerprint says that nothing is compared, and that a new record has
	// no fingerprint. With it, Fingerprint must be nil; without it, it must not.
	SkipFingerprint bool

	Lease       time.Duration
	Keep        time.Duration // how long the record stays once its lease has lapsed; not positive: until someone resolves it
	RetryFailed bool          // take a command that failed, unless the failure is final
	TakeUnknown bool          // take a command whose outcome is unknown or whose lease has lapsed
}

// Check returns an error if the claim has neither a Fingerprint nor
// SkipFingerprint, or both. A store calls it before it does anything; once it
// has, a nil Fingerprint means that nothing is compared.
func (c Claim) Check() error { return checkFingerprint("Claim", c.Fingerprint, c.SkipFingerprint) }

// A Hold is the proof of a claim that was given.
type Hold struct {
	ID    ID
	Owner string
	Fence int64
}

// A TxStore is a Store in a database of the caller's. It runs a function of the
// caller's and the record's change as one transaction: both happen, or neither. TX
// is the type of a transaction, such as *sql.Tx.
//
// When the answer to a commit is lost, the store looks for what only that
// transaction can have written: the owner, fence and state of a record are what
// any settlement of the hold leaves. RunTx and SettleTx return nil only if
// the transaction was committed, an error that is ErrUnknown if the store could not find
// out, and any other error only if nothing of it is there.
type TxStore[TX any] interface {
	Store

	// RunTx claims, runs and settles in one transaction. A claim that
	// Claim.Check rejects is an error before anything runs. If the claim is not
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
	// end the transaction. A settlement that Settlement.Check rejects counts as
	// an error of fn's with a zero settlement. Any other error means that
	// nothing was committed, except for ErrUnknown: then the commit's answer was
	// lost, and the store could not find out what became of it.
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
	// many it deleted. It never deletes one whose lease is alive, nor one whose
	// lease has lapsed and whose claim has no Keep.
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

// A Resolver lets a person decide the outcome of a command that nobody holds.
type Resolver interface {
	// Resolve ends a record that nobody holds as s says; a zero s deletes it,
	// so that the next claim runs the command anew. The record gets a new owner
	// and a higher fence, so that everyone who saw it before must look again.
	// Resolve returns ErrNotFound if there is no record, ErrLost if the record's fence
	// is not fence any more, and ErrInFlight while a lease on it is alive.
	Resolve(ctx context.Context, id ID, fence int64, s Settlement) error
}

// A Diagnoser finds settings of a store that would break the promise.
type Diagnoser interface {
	Diagnose(ctx context.Context) ([]Finding, error)
}

// A Finding is a setting that would break the promise.
type Finding struct {
	Name    string // stable: a risk is accepted by it
	Problem string // what is set, and what it would do
	Fix     string // the command or setting that mends it
}

func (f Finding) String() string { return f.Name + ": " + f.Problem + "; " + f.Fix }
