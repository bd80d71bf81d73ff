package transact

import (
	"errors"
	"testing"
)

func TestCommit_ACommitIsJudgedByWhatOnlyItCanHaveWritten(t *testing.T) {
	mine, other, earlier := NewToken(), NewToken(), NewToken()
	for _, c := range []struct {
		name   string
		before []byte
		now    Trace
		want   error
	}{
		{"its token is there", earlier, Trace{Token: mine, Fence: 7}, nil},
		{"its token is there although others followed", earlier, Trace{Token: mine, Fence: 9}, nil},
		{"the row is as it was", earlier, Trace{Token: earlier, Fence: 5, Floor: 8}, ErrNotCommitted},
		{"the hold was settled otherwise", earlier, Trace{Token: earlier, Fence: 7}, ErrNotCommitted},
		{"the hold was settled by another transaction", earlier, Trace{Token: other, Fence: 7}, ErrNotCommitted},
		{"a later attempt has the row", earlier, Trace{Token: earlier, Fence: 9, Floor: 6}, ErrNotCommitted},
		{"a later transaction settled", earlier, Trace{Token: other, Fence: 9}, ErrMovedOn},
		{"a later attempt has the row, and one may have been deleted between", nil, Trace{Fence: 9, Floor: 7}, ErrMovedOn},
		{"there was no row, and a later attempt made one", nil, Trace{Fence: 9}, ErrNotCommitted},
		{"there is no row", nil, Trace{Floor: 6}, ErrNotCommitted},
		{"there is no row, and one may have been deleted", nil, Trace{Floor: 7}, ErrMovedOn},
	} {
		t.Run(c.name, func(t *testing.T) {
			commit := Commit{Token: mine, Fence: 7, Before: c.before}
			if err := commit.Committed(c.now); !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

func TestCommit_TokensDiffer(t *testing.T) {
	a, b := NewToken(), NewToken()
	if string(a) == string(b) || TokenLock(a) == TokenLock(b) {
		t.Errorf("%x and %x", a, b)
	}
}
