package optimistic

import (
	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// AddSteps adds steps to those of the record that the hold owns, or returns
// onlyonce.ErrLost. write replaces the row's steps by all of them, unless the row has
// changed since it was seen.
func AddSteps(on Rows, k *record.Key, h *onlyonce.Hold, steps map[string][]byte, write func(seen *record.Stored, all any) (written bool, err error)) error {
	return change(on, k, func(seen *record.Stored) (bool, error) {
		if !seen.HeldBy(h) {
			return false, onlyonce.ErrLost
		}
		all, err := seen.WithSteps(steps)
		if err != nil {
			return false, err
		}
		return write(seen, all)
	})
}

// Resolve ends a record that is not held with st, if it is unchanged since the person
// has seen it. write ends it, unless the row has changed since it was found.
func Resolve(on Rows, k *record.Key, seen *onlyonce.Record, st *onlyonce.Settlement, write func(found *record.Stored) (written bool, err error)) error {
	return change(on, k, func(found *record.Stored) (bool, error) {
		if err := found.Resolvable(*seen, *st); err != nil {
			return false, err
		}
		return write(found)
	})
}

// change finds the row and writes it, until either fails or it is written.
func change(on Rows, k *record.Key, write func(seen *record.Stored) (written bool, err error)) error {
	for n := 0; ; n++ {
		if n > 0 {
			if err := on.Retry(n); err != nil {
				return err
			}
		}
		seen, err := on.Find(k)
		if err != nil {
			return err
		}
		if written, err := write(seen); written || err != nil {
			return err
		}
	}
}
