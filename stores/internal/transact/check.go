package transact

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/onlyonce-go/onlyonce"
)

// Check returns what a function returned, but an error and a zero settlement, so that
// nothing is written, if Settlement.Check rejects the settlement. The error begins with
// the store's operation.
func Check(doing string, s onlyonce.Settlement, err error) (onlyonce.Settlement, error) {
	if wrong := s.Check(); wrong != nil {
		return onlyonce.Settlement{}, errors.Join(fmt.Errorf("%s: %w", doing, wrong), err)
	}
	return s, err
}

// Result is the error that the caller gets: its function's own as it is, joined with
// the store's if there is one.
func Result(doing string, own, err error) error {
	if err != nil {
		err = fmt.Errorf("%s: %w", doing, err)
	}
	if own != nil && err != nil {
		return errors.Join(own, err)
	}
	return cmp.Or(own, err)
}
