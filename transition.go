package onlyonce

import (
	"bytes"
	"time"
)

// Takes reports whether the claim takes over r, an existing record that has not
// expired. If so, the store stores what Next returns. A claim does not take the
// record that it made itself: a store that repeats a claim finds its own owner and
// grants it again.
func (c Claim) Takes(r Record) bool {
	// Other code depends on this rule. isFinal, and the model of internal/reliability/histories,
	// repeat it on purpose. releasedAs concludes from it which state a record had before a
	// claim took it over. cryptstore's claim allows a take-over only from the state that it has
	// read. The statements by which PostgreSQL and MySQL take over a row (in statements.sql)
	// also require that the row is still the one that was read, and that its lease has lapsed by
	// the server's clock: a rule that takes over a live lease must change them, too.
	if r.Owner == c.Owner || !c.matches(r) {
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

// Concluded reports whether the record has the outcome of a command that has completed, or has failed
// for good (Final): no claim takes over such a record, whatever the claim's settings are.
func (r Record) Concluded() bool { return isFinal(r.State, r.Final) }

// isFinal is Concluded for the state of a record or a settlement.
func isFinal(s State, final bool) bool { return s == StateCompleted || s == StateFailed && final }

// matches reports whether the claim is for the same request as the claim that
// created r.
func (c Claim) matches(r Record) bool {
	return c.SkipFingerprint || len(r.Fingerprint) == 0 || bytes.Equal(c.Fingerprint, r.Fingerprint)
}

// Next returns the record of the attempt that the claim begins, with its owner
// and its lease. If seen is nil, it is the record of a new command. Otherwise,
// the attempt takes over seen, whose steps, error, creation time and
// fingerprint (the claim's, if seen has none) stay, and whose summary stays
// unless the claim has one. The store sets Fence, which
// must be higher than every earlier fence of the ID and higher than its clock
// in microseconds. It also sets the CreatedAt of a new command.
func (c Claim) Next(seen *Record) Record {
	next := Record{ID: c.ID, State: StateProcessing, Fingerprint: c.Fingerprint, Summary: c.Summary, Owner: c.Owner, Attempt: 1, LeaseLeft: c.Lease}
	if seen == nil {
		return next
	}
	if len(seen.Fingerprint) > 0 {
		next.Fingerprint = seen.Fingerprint
	}
	if next.Summary == "" {
		next.Summary = seen.Summary
	}
	next.Attempt, next.Error, next.Steps, next.CreatedAt = seen.Attempt+1, seen.Error, seen.Steps, seen.CreatedAt
	return next
}

// Settled returns r as the settlement leaves it at the given time of the
// store's clock. The settlement must not be a release, which leaves no record.
func (r Record) Settled(s Settlement, at time.Time) Record {
	r.State, r.Result, r.Error, r.Final = s.State, s.Result, s.Error, s.Final
	r.SettledAt, r.LeaseLeft, r.KeepLeft = at, 0, max(s.Keep, 0)
	return r
}

// Remembered returns r as it is once its Result.Keep has passed, and until its KeepLeft has: in
// StateRemembered, without the result and what else is known of the request and its attempts.
func (r Record) Remembered() Record {
	return Record{
		ID: r.ID, State: StateRemembered, Owner: r.Owner, Attempt: r.Attempt, Fence: r.Fence,
		CreatedAt: r.CreatedAt, SettledAt: r.SettledAt, KeepLeft: r.KeepLeft,
	}
}

// Resolvable returns nil if a person's decision s about r, a record that has not
// expired, may take effect. It returns ErrLost if the record has changed since the
// person saw it: the fence grows with every attempt and every decision, and the state
// changes when an attempt ends late. It returns ErrInFlight while the lease is alive, and
// ErrKeyExpired unless s deletes a record in StateRemembered. A store's Resolve then gives
// the record a new owner and a higher fence.
func (r Record) Resolvable(seen Record, s Settlement) error {
	switch {
	case r.Fence != seen.Fence:
		return ErrLost
	case r.State == StateProcessing && r.LeaseLeft > 0:
		return ErrInFlight
	case r.State != seen.State:
		return ErrLost
	case r.State == StateRemembered && s.State != "":
		return ErrKeyExpired
	}
	return nil
}
