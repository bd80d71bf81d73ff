package transact

import (
	"context"
	"errors"
	"fmt"

	"github.com/onlyonce-go/onlyonce"
)

// Checked returns fn, but with an error and a zero settlement, so that nothing is
// written, when fn returns a settlement that Settlement.Check rejects. The error
// begins with the verb.
func Checked[TX any](verb string, fn func(context.Context, TX, onlyonce.Record) (onlyonce.Settlement, error)) func(context.Context, TX, onlyonce.Record) (onlyonce.Settlement, error) {
	return func(ctx context.Context, tx TX, r onlyonce.Record) (onlyonce.Settlement, error) {
		s, err := fn(ctx, tx, r)
		return check(verb, s, err)
	}
}

// check makes a settlement that Settlement.Check rejects an error.
func check(verb string, s onlyonce.Settlement, err error) (onlyonce.Settlement, error) {
	if wrong := s.Check(); wrong != nil {
		return onlyonce.Settlement{}, errors.Join(fmt.Errorf("%s: %w", verb, wrong), err)
	}
	return s, err
}
