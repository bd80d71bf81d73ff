package onlyonce

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"
	"unicode/utf8"
)

// A Store keeps records. Every method is one atomic step at the store and uses
// the store's own clock: callers pass durations, never points in time.
//
// A call that is repeated because its response was lost is recognized by its
// Owner and takes effect once. An error that is not one of this package's means
// that the store could not be reached. It is then unknown whether the call took
// effect, and the call may be repeated. ErrLost means that the call changed
// nothing: a store that resends a call by itself and cannot tell whether the
// first one arrived returns another error. The contents of a returned Record
// must not be modified.
//
// Every method treats an expired record as absent, except for its fence. A
// settled record expires when its Keep ends. A processing record whose claim
// has a Keep expires when that time has passed since its lease lapsed, and
// never while its lease is alive.
//
// If the Result of a settlement has a Keep, a store returns the record as
// Record.Remembered defines once that time has passed since the settlement, whether or not
// it has deleted the result yet. No claim takes such a record over.
type Store interface {
	// Claim asks for the right to run a command. A claim that Claim.Check
	// rejects is an error that changes nothing. Otherwise, Claim returns the
	// record in its current state. The caller holds the command if and only if
	// Record.Owner is Claim.Owner. A record that the claim does not take over
	// (see Claim.Takes) is not changed, and neither is its lease.
	Claim(ctx context.Context, c Claim) (Record, error)

	// Renew makes the hold's lease end one full lease from now and adds steps
	// to those of the record. It returns ErrLost unless the hold is the
	// record's and the record is processing.
	Renew(ctx context.Context, h Hold, lease time.Duration, steps map[string][]byte) error

	// Settle ends the attempt. A settlement that Settlement.Check rejects is an
	// error that changes nothing. It returns ErrLost unless the hold is the
	// record's. A lapsed lease does not matter as long as no other attempt has
	// taken over. Settling again with the same hold changes nothing and is not
	// an error, except after a release, which leaves no record. A settlement that
	// is larger than the store accepts is an ErrTooLarge, and changes nothing.
	Settle(ctx context.Context, h Hold, s Settlement) error

	// Lookup returns the record of id, or ErrNotFound.
	Lookup(ctx context.Context, id ID) (Record, error)
}

// A Claim asks a store for the right to run a command.
type Claim struct {
	ID          ID
	Owner       string // 16 random bytes, new for every claim
	Fingerprint []byte // must equal the record's fingerprint, if the record has one

	// SkipFingerprint means that nothing is compared and that a new record has
	// no fingerprint. Fingerprint must be nil if and only if it is set.
	SkipFingerprint bool

	// Summary describes the request, as Request.Summary does. An encrypting store makes it
	// longer: every store accepts twice LongestSummary and 1 KiB.
	Summary string

	Lease time.Duration

	// Keep is how long the record stays once its lease has lapsed, or
	// KeepForever, which is also what 0 means.
	Keep time.Duration

	RetryFailed bool // take over a command that failed, unless the failure is final
	TakeUnknown bool // take over a command whose outcome is unknown or whose lease has lapsed
}

// Check returns an error if the claim has neither a Fingerprint nor
// SkipFingerprint, or both, or a negative Keep other than KeepForever. A store
// calls it before it does anything else. After that, a nil Fingerprint means that
// nothing is compared.
func (c Claim) Check() error {
	if err := checkFingerprint("Claim", c.Fingerprint, c.SkipFingerprint); err != nil {
		return err
	}
	return checkKeep("Claim", c.Keep)
}

// A Hold is the proof of a granted claim.
type Hold struct {
	ID    ID
	Owner string
	Fence int64
}

// A TxStore is a Store in the caller's database. It runs the caller's function
// and changes the record in one transaction: either both take effect, or
// neither does. TX is the type of a transaction, such as *sql.Tx.
//
// When the response to a commit is lost, the store looks for data that only that
// transaction can have written; a record's owner, fence and state are not
// enough, because any settlement of the hold leaves the same. RunTx and
// SettleTx return nil only if the transaction was committed. They return
// ErrInDoubt if the store could not find out, ErrUnknown if fn ended its own
// transaction, and any other error only if nothing of the transaction was
// committed.
type TxStore[TX any] interface {
	Store

	// RunTx claims, runs and settles in one transaction. A claim that
	// Claim.Check rejects is an error before anything runs. If the claim is not
	// granted, fn does not run, and the record is returned in its current
	// state. While another RunTx for the ID is running, that is a processing
	// record.
	//
	// Otherwise, fn gets the transaction and the record as claimed. When fn
	// returns no error, its writes and the settlement are committed together.
	// When it returns an error, its writes are rolled back, the settlement is
	// recorded alone unless it is zero, and the error is returned unchanged.
	// When it panics, everything is rolled back, nothing is recorded, and the
	// panic continues.
	//
	// ctx limits the wait for fn's turn. Once the transaction has begun, the end
	// of ctx ends the context that fn gets, and has no other effect. fn may run
	// more than once if the database requires a retry; all runs but the last
	// were rolled back. fn must not end the transaction. A settlement that
	// Settlement.Check rejects counts as an error of fn with a zero settlement.
	// Any other error means that nothing was committed, except for ErrUnknown
	// and ErrInDoubt (see TxStore).
	RunTx(ctx context.Context, c Claim, fn func(ctx context.Context, tx TX, r Record) (Settlement, error)) (Record, error)

	// SettleTx runs fn and settles an existing claim in one transaction. It
	// rolls back and returns ErrLost unless the hold is the record's and the
	// record is processing. The results of fn mean the same as in RunTx, except
	// that a panic, or an error with a zero settlement, leaves the claim
	// unchanged.
	SettleTx(ctx context.Context, h Hold, fn func(ctx context.Context, tx TX) (Settlement, error)) error
}

// A CallersTx is a store that may be in a transaction of its caller's, such as one that
// WithTx of a SQL store returns. The calls of such a store take effect, or do not, together
// with the transaction. Nobody else may use the transaction meanwhile, and after an error
// it has to be rolled back. A Guard therefore calls the store only from the goroutines that
// call the Guard or its attempts, repeats no call, and waits for no other attempt. It
// renews no lease: others that claim the command wait for the end of the transaction.
type CallersTx interface {
	// InCallersTx reports whether the store is in a transaction of its caller's.
	InCallersTx() bool
}

// A Purger deletes expired records and results.
type Purger interface {
	// Purge deletes at most limit expired records, and results whose Keep has passed
	// before that of their records, and returns how many of both it deleted. It never
	// deletes a record whose lease is alive, or a record whose lease has lapsed and whose
	// claim has no Keep.
	Purge(ctx context.Context, limit int) (int, error)
}

// A Lister lists records, newest first.
type Lister interface {
	List(ctx context.Context, f Filter) iter.Seq2[Record, error]
}

// A Counter counts records without listing them.
type Counter interface {
	// CountRecords returns a RecordCount for each tenant, operation and state in which there is a
	// record, in no order. It reads all records, but not their responses.
	CountRecords(ctx context.Context) ([]RecordCount, error)
}

// A RecordCount is the number of records of one tenant and operation in one state.
type RecordCount struct {
	Tenant, Operation string
	State             State
	Lapsed            bool // with StateProcessing: the leases of these records have lapsed
	Count             int
	Oldest            time.Duration // the time since the oldest of them was created
}

// A Filter selects the records to list. A zero field matches any record.
type Filter struct {
	Tenant, Operation, Key, Ref string
	State                       State

	// Unresolved selects the records for which Record.Unresolved is true. A store in a SQL
	// database finds them by an index, and so leaves out a record that cannot be decoded
	// although its state says that it completed or failed.
	Unresolved bool

	IDPrefix string // the beginning of ID.HexHash
	After    Record // the last record of the previous page; only its ID and CreatedAt are used
	Limit    int    // 0 or less: all
}

// FromNewest reports whether the list begins with the newest record: After is not set. A
// record without a date, which only a damaged store has, comes last, and nothing after it.
func (f Filter) FromNewest() bool { return f.After.ID == (ID{}) && f.After.CreatedAt.IsZero() }

// A Waiter waits for changes of a record.
type Waiter interface {
	// Wait returns when the record of id may have changed or ctx has ended.
	Wait(ctx context.Context, id ID) error
}

// A Resolver lets a person decide the outcome of a command that nobody holds.
type Resolver interface {
	// Resolve settles with s a record that no attempt holds. A zero s deletes it,
	// so the next claim runs the command as new. The record gets a new owner
	// and a higher fence, so every caller that saw the old record must look it
	// up again. seen is the record as the person saw it; only its ID, Fence and
	// State are used. Resolve returns ErrNotFound if there is no record, ErrLost
	// if another attempt or another person has changed it since, or the attempt
	// that was taken for dead has ended, and ErrInFlight while its lease is
	// alive. A record in StateRemembered can only be deleted: any other s is an
	// ErrKeyExpired.
	Resolve(ctx context.Context, seen Record, s Settlement) error
}

// An Auditor is a Resolver that records who decided, when, why, and what was
// before. Entries can only be added: they stay when the record is deleted or
// purged, and no method changes or deletes them.
type Auditor interface {
	Resolver

	// ResolveAudited does what Resolve does and adds an AuditEntry in the same
	// transaction: either both take effect, or neither does. A decision that
	// Decision.Check rejects is an error that changes nothing.
	ResolveAudited(ctx context.Context, seen Record, s Settlement, d Decision) error

	// AuditTrail returns the entries about the command id, oldest first. A
	// command about which no person has decided has none.
	AuditTrail(ctx context.Context, id ID) ([]AuditEntry, error)
}

// A Decision says who resolves a record, and why.
type Decision struct {
	Actor  string // the person, such as the name of a user; 1 to 255 bytes
	Reason string // 1 to 2048 bytes
}

// Check returns an error if the Actor or the Reason is empty, too long, not UTF-8, or
// contains a NUL byte.
func (d Decision) Check() error {
	for _, part := range []struct {
		name, text string
		longest    int
	}{{"Actor", d.Actor, 255}, {"Reason", d.Reason, 2048}} {
		switch {
		case part.text == "":
			return fmt.Errorf("the decision has no %s: an audit trail says who decided, and why", part.name)
		case len(part.text) > part.longest:
			return fmt.Errorf("the %s of the decision has %d bytes, and at most %d are kept", part.name, len(part.text), part.longest)
		case !utf8.ValidString(part.text) || strings.Contains(part.text, "\x00"):
			return fmt.Errorf("the %s of the decision is not UTF-8, or contains a NUL byte", part.name)
		}
	}
	return nil
}

// An AuditEntry is one decision of a person about a record.
type AuditEntry struct {
	ID ID
	At time.Time // by the store's clock
	Decision

	// Before is the record as it was. Only its ID, State, Attempt, Fence, Error, Final,
	// Corrupt, and its Result's Status and Ref are kept.
	Before Record

	// After is the settlement, without its Result's Header and Body. The zero
	// Settlement means that the record was deleted.
	After Settlement
}

// A Diagnoser finds settings of a store that would break the guarantees.
type Diagnoser interface {
	Diagnose(ctx context.Context) ([]Finding, error)
}

// A Finding is a setting that would break the guarantees.
type Finding struct {
	Name    string // stable: operators accept a risk by this name
	Problem string // the setting and its consequence
	Fix     string // the command or setting that fixes it
}

func (f Finding) String() string { return f.Name + ": " + f.Problem + "; " + f.Fix }
