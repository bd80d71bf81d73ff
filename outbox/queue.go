package outbox

import (
	"context"
	"errors"
	"time"
)

// A Queue keeps messages from the commit of their transaction until they are
// published. Every method is one atomic step at the queue's store, by the
// store's own clock. How messages come in is the store's own: its Append joins a
// transaction of the store's kind, completes each message with Prepare, and
// leaves nothing when the transaction is rolled back.
type Queue interface {
	// Lease gives owner, for the time given, the oldest messages that wait, at
	// most limit, in the order in which they were appended. It gives none of a key
	// that has a message which is leased, or put back until later, or parked. So
	// of one key it gives the oldest ones, and only to one owner at a time. A
	// message whose lease has lapsed waits again.
	Lease(ctx context.Context, owner string, lease time.Duration, limit int) ([]Entry, error)

	// Renew makes owner's lease end a full lease from now. It returns ErrLost if
	// the lease lapsed and the messages wait again, or have another owner.
	Renew(ctx context.Context, owner string, lease time.Duration) error

	// Settle says what became of messages leased to owner, also after the
	// lease lapsed. It returns ErrLost if one of them has another owner by now;
	// that one is left alone, and the others are settled.
	Settle(ctx context.Context, owner string, verdicts []Verdict) error

	// Lag says how much waits to be published.
	Lag(ctx context.Context) (Lag, error)

	// Parked returns at most limit parked messages whose Seq is above after, in
	// that order.
	Parked(ctx context.Context, after int64, limit int) ([]Entry, error)

	// Requeue lets parked messages wait again, with no attempts, and Discard
	// deletes parked messages. Both return how many of seqs were parked.
	Requeue(ctx context.Context, seqs ...int64) (int, error)
	Discard(ctx context.Context, seqs ...int64) (int, error)

	// Purge deletes at most limit published messages whose time to be kept is
	// over, and returns how many it deleted.
	Purge(ctx context.Context, limit int) (int, error)
}

// A Waker is a Queue that knows when messages are appended.
type Waker interface {
	// Wait returns nil when messages were appended since it last did; their
	// transactions may not be committed yet. It returns ctx's error when ctx has
	// ended first.
	Wait(ctx context.Context) error
}

// ErrLost means that a lease lapsed and another relay may have its messages.
var ErrLost = errors.New("the lease on the messages was lost: another relay may be publishing them")

// An Entry is a message in a queue.
type Entry struct {
	Message
	Seq      int64  // its place in the queue; later ones are higher
	Attempts int    // how often publishing it has failed
	Error    string // why it last failed; of a corrupt entry, what can't be decoded
	Corrupt  bool   // what was stored can't be decoded: a relay parks the message and does not publish it
}

// What becomes of a leased message.
const (
	StatePublished = "published"
	StateWaiting   = "waiting"
	StateParked    = "parked" // until someone requeues or discards it
)

// A Verdict says what becomes of a leased message.
type Verdict struct {
	Seq      int64
	State    string        // StatePublished, StateWaiting or StateParked
	After    time.Duration // published: how long it is kept, 0: it is deleted; waiting: when it may be leased again, 0: now
	Attempts int           // unless published: the Entry's Attempts from now on
	Error    string        // unless published: the Entry's Error from now on
}

// A Lag says how much waits to be published.
type Lag struct {
	Waiting int           // how many messages are not published, not counting parked ones
	Oldest  time.Duration // the age of the oldest of them
	Parked  int
}
