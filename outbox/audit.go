package outbox

import (
	"context"
	"time"
)

// An Auditor is a Queue that records who decided about parked messages, when, why, and
// the decision. Entries can only be added: they stay when the message is published or
// deleted, and no method changes or deletes them.
type Auditor interface {
	Queue

	// RequeueAudited and DiscardAudited do what Requeue and Discard do and add an AuditEntry
	// for each message that was parked, in the same transaction: either both take effect,
	// or neither does. A decision without an Actor or a Reason, or with one that is too
	// long, is an error that changes nothing.
	RequeueAudited(ctx context.Context, d Decision, seqs ...int64) (int, error)
	DiscardAudited(ctx context.Context, d Decision, seqs ...int64) (int, error)

	// AuditTrail returns at most limit entries, newest first, whose Seq is below before;
	// 0 means the newest.
	AuditTrail(ctx context.Context, before int64, limit int) ([]AuditEntry, error)
}

// A Decision says who decides about messages, and why. It has the limits of an
// onlyonce.Decision, to which it can be converted.
type Decision struct {
	Actor  string // the person, such as the name of a user; 1 to 255 bytes
	Reason string // 1 to 2048 bytes
}

// An AuditEntry is one decision of a person about a parked message.
type AuditEntry struct {
	Seq int64     // its position in the audit trail; it increases
	At  time.Time // by the store's clock
	Decision
	Action string // ActionRequeue or ActionDiscard

	// Message is the message as it was. Its Headers, Payload and CreatedAt are not kept.
	Message Entry
}

// These are the Actions of an AuditEntry.
const (
	ActionRequeue = "requeue"
	ActionDiscard = "discard"
)
