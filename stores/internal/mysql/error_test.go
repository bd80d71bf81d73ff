package mysql

import (
	"errors"
	"fmt"
	"testing"
)

func TestError_TheNumberOfAnErrorIsFoundWhateverWrapsIt(t *testing.T) {
	deadlock := errors.New("Error 1213 (40001): Deadlock found when trying to get lock; try restarting transaction")
	other := errors.New("the form says Error 1213")
	for _, err := range []error{
		deadlock, fmt.Errorf("insert: %w", deadlock), errors.Join(other, deadlock), fmt.Errorf("%w: %w", other, fmt.Errorf("insert: %w", deadlock)),
	} {
		if n := numberOf(err); n != 1213 {
			t.Errorf("%q has the number %d", err, n)
		}
	}
	for _, err := range []error{nil, other, errors.Join(other, errors.New("no"))} {
		if n := numberOf(err); n != 0 {
			t.Errorf("%v has the number %d", err, n)
		}
	}
}
