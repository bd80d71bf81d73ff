package outbox

import (
	"context"
	"errors"
	"time"
)

// A Queue keeps messages from the commit of their transaction until they are
// published. Every method is one atomic step at the queue's store and uses the
// store's own clock. Each store has its own way to add messages: its Append
// joins a transaction of the store's type, completes each message with Prepare,
// and leaves nothing behind when the transaction is rolled back.
type Queue interface {
	// Lease leases to owner at most limit of the oldest waiting messages, in the
	// order in which they were appended. It skips every key that has a message that
	// is leased, deferred or parked. So it leases the oldest messages of a key, and
	// only to one owner at a time. It leases fewer if their payloads would have more
	// than MaxLeaseBytes together, but at least one. A message whose lease has
	// lapsed waits again, and so may one that is to be held for more than MaxHeld.
	// It also skips messages of the topics in except, and every key that has a
	// waiting message of one of them.
	Lease(ctx context.Context, owner string, lease time.Duration, limit int, except ...string) ([]Entry, error)

	// Renew makes owner's lease on messages end one full lease from now. It returns ErrLost
	// if the lease lapsed and all of them wait again, or have another owner.
	Renew(ctx context.Context, owner string, lease time.Duration, seqs ...int64) error

	// Settle records the outcome of messages leased to owner, even after the
	// lease has lapsed. It returns ErrLost if one of them has another owner by
	// now. That message is not changed, and the others are settled.
	Settle(ctx context.Context, owner string, verdicts []Verdict) error

	// Lag returns how many messages wait to be published, and for how long.
	Lag(ctx context.Context) (Lag, error)

	// Parked returns at most limit parked messages whose Seq is above after, in
	// the order of Seq.
	Parked(ctx context.Context, after int64, limit int) ([]Entry, error)

	// Requeue makes parked messages wait again, with their attempts reset, and
	// Discard deletes parked messages. Both return how many of seqs were
	// parked.
	Requeue(ctx context.Context, seqs ...int64) (int, error)
	Discard(ctx context.Context, seqs ...int64) (int, error)

	// Purge deletes at most limit published messages whose keep time has ended,
	// and returns how many it deleted.
	Purge(ctx context.Context, limit int) (int, error)
}

// A Waker is a Queue that can wait until messages are appended.
type Waker interface {
	// Wait returns nil when messages have been appended since it last returned;
	// their transactions may not be committed yet. It returns ctx's error if
	// ctx ends first.
	Wait(ctx context.Context) error
}

// ErrLost means that a lease lapsed and another relay may have its messages.
var ErrLost = errors.New("the lease on the messages was lost: another relay may be publishing them")

// An Entry is a message in a queue.
type Entry struct {
	Message
	Seq      int64  // its position in the queue; it increases
	Attempts int    // how often publishing it has failed
	Error    string // the last failure; for a corrupt entry, the part that cannot be decoded
	Corrupt  bool   // the stored message can't be decoded: a relay parks it and does not publish it
}

// These are the states in which Settle can leave a leased message.
const (
	StatePublished = "published"
	StateWaiting   = "waiting"
	StateParked    = "parked" // until someone requeues or discards it
)

// A Verdict is the outcome of a leased message.
type Verdict struct {
	Seq      int64
	State    string        // StatePublished, StateWaiting or StateParked
	After    time.Duration // published: how long it is kept (0: it is deleted); waiting: when it may be leased again (0: now)
	Attempts int           // unless published: the Entry's new Attempts
	Error    string        // unless published: the Entry's new Error
}

// A Lag describes the backlog of a queue.
type Lag struct {
	Waiting int           // how many messages are not yet published, not counting parked ones
	Oldest  time.Duration // the age of the oldest of them
	Parked  int
}
