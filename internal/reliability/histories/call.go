//go:build linux

// Package histories checks the stores for linearizability. Clients in several processes call
// a store with the same few keys while the network, the processes and the server fail. The
// result of every call is compared with a model of one record: its state, attempt, fence,
// lease, result, owner and expiry, and the business rows of its transactions.
package histories

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/onlyonce-go/onlyonce"
)

// A Kind is a method of a store, as a call uses it.
type Kind string

// Remove is a resolution that deletes the record; Rows reads the business rows.
const (
	Claim    Kind = "Claim"
	Renew    Kind = "Renew"
	Settle   Kind = "Settle"
	RunTx    Kind = "RunTx"
	SettleTx Kind = "SettleTx"
	Lookup   Kind = "Lookup"
	Resolve  Kind = "Resolve"
	Remove   Kind = "Remove"
	Purge    Kind = "Purge"
	Rows     Kind = "Rows"
)

// changes reports whether a call of this kind may change the record.
func (k Kind) changes() bool { return k != Lookup && k != Purge && k != Rows }

// An Ending is how the function of a transaction ends.
type Ending string

// The endings of a transaction's function.
const (
	Commits  Ending = "commits"
	Fails    Ending = "fails"           // returns an error and a settlement
	GivesUp  Ending = "fails unsettled" // returns an error and no settlement
	Panicked Ending = "panics"
)

// A Call is a call of a method of a store.
type Call struct {
	Kind   Kind
	Client int
	N      int   // counts the calls of the client
	Start  int64 // by now

	Owner       string         // of the claim or the hold
	Fence       int64          // of the hold, or of the record to resolve
	SeenState   onlyonce.State // of the record to resolve
	Fingerprint int            // 0: none
	Lease       time.Duration
	RetryFailed bool
	TakeUnknown bool
	Step        string // that a renewal adds; empty: none

	State onlyonce.State // of the settlement; empty: a release
	Final bool
	Keep  time.Duration
	Text  string // the settlement's result or error

	Ending Ending
	Row    string // the business row that the transaction inserts
}

// A Verdict is the result that a call returned.
type Verdict string

// The verdicts. A call in doubt may take effect at any time after it began, or
// never.
const (
	Done     Verdict = "done"
	Lost     Verdict = "ErrLost"
	NotFound Verdict = "ErrNotFound"
	InFlight Verdict = "ErrInFlight"
	Nothing  Verdict = "ErrUnavailable" // nothing happened
	Own      Verdict = "its own error"
	OwnLost  Verdict = "its own error and ErrLost"
	Doubt    Verdict = "in doubt"
)

// An Outcome has the results of a call.
type Outcome struct {
	Verdict Verdict
	Err     string
	End     int64 // by now
	Record  *SeenRecord
	Rows    []string
	Fences  []SeenFence
}

// A SeenFence is a fence that the function of a transaction has seen.
type SeenFence struct{ Fence, At int64 }

// A SeenRecord is a record as a call returned it.
type SeenRecord struct {
	State       onlyonce.State
	Owner       string
	Fingerprint int // -1: no client sends it
	Attempt     int
	Fence       int64
	Result      string // as text returns it
	Error       string
	Final       bool
	Corrupt     bool
	Steps       string
	Created     int64
	LeaseLeft   time.Duration
	KeepLeft    time.Duration
	Busy        bool // a transaction runs the command, and has written nothing yet
}

// An Event is a call with its outcome. A call whose process died has no outcome and is in
// doubt.
type Event struct {
	Call
	Outcome
	Process        int           // 0: the lookup at the end
	Slack          time.Duration // by how much the store's clock may differ from ours
	Lag            time.Duration // by how much later a lease or a record may end
	SeesExpired    bool          // as in the Plan
	Resends        int           // as in the Plan
	Releasing      time.Duration // as in the Plan
	reverted       bool          // it stands for an effect that a claim may have had and lost before it returned
	overlapsChange bool          // it overlaps another call that changes the record
	overlapsRunTx  bool          // it overlaps another RunTx, or the time for which another one may have left its lock
}

// leavesLock reports whether a transaction may have left its lock at a time after its end,
// because it could not reach the server to release the lock.
func (e *Event) leavesLock(at int64) bool {
	return e.Kind == RunTx && e.Releasing > 0 && e.End-e.Start >= int64(e.Releasing) && at-e.End <= int64(e.Lease+e.Lag+e.Slack)
}

// mayBeUndone reports whether a failover may contradict the result of a call that changed
// nothing: a record that is not settled, the absence of a record, or business rows, which are
// read from the database, past the store. Nothing is undone after the last look at the rows.
func (e *Event) mayBeUndone() bool {
	switch e.Verdict {
	case NotFound, InFlight, Lost:
		return true
	}
	if e.Kind == Rows {
		return e.Process != 0
	}
	return e.Verdict == Done && e.Record != nil && (e.Record.Busy || e.Record.State == onlyonce.StateProcessing && e.Record.Owner != e.Owner)
}

// now reads the clock that all processes of the machine share.
func now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // every Linux has it
	}
	return t.Nano()
}
