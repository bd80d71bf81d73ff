package mysql

import (
	"errors"
	"fmt"
	"testing"

	"github.com/onlyonce-go/onlyonce/stores/internal/server"
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

// Such an error is not the fault of what a transaction did: a message whose handler met it must not count
// as failed.
func TestError_AServerThatLacksRoomOrItsClusterIsAway(t *testing.T) {
	for n, want := range map[int]server.ErrorClass{
		1021: server.ClassOther, 1026: server.ClassOther, 1041: server.ClassOther, 1047: server.ClassOther, 1114: server.ClassOther,
		1180: server.ClassOther, 1203: server.ClassOther, 3100: server.ClassOther,
		1062: server.ClassRejected, 1452: server.ClassRejected, 1213: server.ClassConflict,
	} {
		err := fmt.Errorf("commit: %w", fmt.Errorf("Error %d (HY000): no", n))
		if class := new(dialect).Classify(err); class != want {
			t.Errorf("error %d has the class %d, want %d", n, class, want)
		}
	}
}
