package record

import (
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// SettledBy reports whether the row, which may have expired, is what a settlement by
// the hold left. A released row is not.
func (s *Stored) SettledBy(h *onlyonce.Hold) bool {
	switch onlyonce.State(s.As) {
	case onlyonce.StateCompleted, onlyonce.StateFailed, onlyonce.StateUnknown:
		return s.Owner == h.Owner && s.Fence == h.Fence
	}
	return false
}

// HeldBy reports whether the row is processing and the hold is its own. Nobody holds a
// nil row.
func (s *Stored) HeldBy(h *onlyonce.Hold) bool {
	return s != nil && !s.Expired && s.State == onlyonce.StateProcessing && s.Owner == h.Owner && s.Fence == h.Fence
}

// Answers reports whether the row is the answer to a claim, which then gets nothing
// else. A nil row answers nothing.
func (s *Stored) Answers(c *onlyonce.Claim) bool {
	return s != nil && !s.Expired && !c.Takes(s.Record)
}

// Next returns the record of the attempt that a claim begins on a command whose row
// it takes, or which has none. A command that begins anew is given its date, in
// microseconds.
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

// Found returns the row's record, or onlyonce.ErrNotFound if there is none.
func (s *Stored) Found() (onlyonce.Record, error) {
	if s == nil || s.Expired {
		return onlyonce.Record{}, onlyonce.ErrNotFound
	}
	return s.Record, nil
}

// Resolvable returns nil if a person's decision about the row may take effect:
// onlyonce.ErrNotFound if there is no record, or the error of Record.Resolvable.
func (s *Stored) Resolvable(seen onlyonce.Record) error {
	r, err := s.Found()
	if err != nil {
		return err
	}
	return r.Resolvable(seen)
}
