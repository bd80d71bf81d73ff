package record

import (
	"crypto/rand"
	"errors"
	"maps"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// SettledBy reports whether a settlement by the hold left the row, so that the same
// settlement has nothing to do. A repeated one may have taken effect before, and the record
// may have expired since. No settlement leaves a released row, or a nil one.
func (s *Stored) SettledBy(h *onlyonce.Hold, repeated bool) bool {
	if s == nil || s.Expired && !repeated {
		return false
	}
	switch onlyonce.State(s.As) {
	case onlyonce.StateCompleted, onlyonce.StateFailed, onlyonce.StateUnknown, onlyonce.StateRemembered:
		return s.isOf(h)
	}
	return false
}

// ReleasedBy reports whether a release by the hold left the row. Only stores whose rows are
// released by nothing else may conclude that from the row.
func (s *Stored) ReleasedBy(h *onlyonce.Hold) bool {
	return s != nil && s.As == StateReleased && s.isOf(h)
}

// HeldBy reports whether the row is processing and the hold is its own. Nobody holds a
// nil row.
func (s *Stored) HeldBy(h *onlyonce.Hold) bool {
	return s != nil && !s.Expired && s.State == onlyonce.StateProcessing && s.isOf(h)
}

// WritableBy reports whether the hold may renew or settle the row. Unlike HeldBy, it includes
// a row whose lease has lapsed and that can't be decoded.
func (s *Stored) WritableBy(h *onlyonce.Hold) bool {
	return s != nil && !s.Expired && s.As == string(onlyonce.StateProcessing) && s.isOf(h)
}

func (s *Stored) isOf(h *onlyonce.Hold) bool { return s.Owner == h.Owner && s.Fence == h.Fence }

// ErrRepeated is the error of a write that was sent again because its result was lost, and
// that did not find the record as it was.
var ErrRepeated = errors.New("the result was lost, and the record has changed since: it is not known whether the call took effect")

// Lost returns the error of a write that did not find its hold.
func Lost(repeated bool) error {
	if repeated {
		return ErrRepeated
	}
	return onlyonce.ErrLost
}

// StandsAgainst reports whether a claim must leave the row as it is and gets its record:
// there is one, and the claim may not take it over. A nil row stands against no claim.
func (s *Stored) StandsAgainst(c *onlyonce.Claim) bool {
	return s != nil && !s.Expired && !c.Takes(s.Record)
}

// Next returns the record of the attempt that a claim begins, over the row that it has
// seen or over none. createdAt, in microseconds, is used if the command starts over.
func Next(c *onlyonce.Claim, seen *Stored, createdAt, fence int64) (r onlyonce.Record) {
	if seen == nil || seen.Expired {
		r = c.Next(nil)
		r.CreatedAt = time.UnixMicro(createdAt).UTC()
	} else {
		r = c.Next(&seen.Record)
	}
	r.Fence = fence
	return r
}

// WithSteps returns the steps of the row and more as a column has them. The steps of a
// damaged row may have parts that cannot be read, and writing would lose them: its damage is
// the error.
func (s *Stored) WithSteps(more map[string][]byte) (any, error) {
	if s.Damage != nil {
		return nil, s.Damage
	}
	all := make(map[string][]byte, len(s.Steps)+len(more))
	maps.Copy(all, s.Steps)
	maps.Copy(all, more)
	return EncodeSteps(all)
}

// Found returns the row's record, or onlyonce.ErrNotFound if there is none.
func (s *Stored) Found() (onlyonce.Record, error) {
	if s == nil || s.Expired {
		return onlyonce.Record{}, onlyonce.ErrNotFound
	}
	return s.Record, nil
}

// Resolvable returns nil if a person's decision st about the row may take effect:
// onlyonce.ErrNotFound if there is no record, or the error of Record.Resolvable.
func (s *Stored) Resolvable(seen onlyonce.Record, st onlyonce.Settlement) error {
	r, err := s.Found()
	if err != nil {
		return err
	}
	return r.Resolvable(seen, st)
}

// NewOwner returns a random owner for a record that a person decided about. It
// is no claim's.
func NewOwner() string {
	b := make([]byte, 16)
	rand.Read(b) // never fails
	return string(b)
}
