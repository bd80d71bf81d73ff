// Package sqlrow is what the SQL stores have in common: how a row of
// onlyonce_records becomes a record.
package sqlrow

import (
	"errors"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// StateReleased is the state of a row without a record, which is there for its
// fence alone.
const StateReleased = "released"

// A Row holds the columns of the statements "lookup" and "list", in their
// order. Instants are microseconds since 1970-01-01 UTC. A NULL is the zero
// value.
type Row struct {
	CreatedAt              int64
	Tenant, Operation, Key string
	Fingerprint            []byte
	State                  string
	Owner                  string
	Attempt                int64
	Fence                  int64
	LeaseUntil             int64
	SettledAt              int64 // 0: not settled
	ExpiresAt              int64 // 0: never
	Status                 int64
	Final                  bool
	Ref, Error             string
	Header, Steps          string // JSON; empty: none
	Body                   []byte
	Now                    int64 // the store's clock

	Err error // what could not be read
}

// A Stored record is a row as it was read.
type Stored struct {
	onlyonce.Record
	Expired    bool          // it is there for its fence alone
	As         string        // the row's own word for its state
	SettledFor time.Duration // since it was settled
}

// Record makes the row a record. What can't be decoded makes it corrupt.
func (r *Row) Record() Stored {
	s := Stored{As: r.State, Record: onlyonce.Record{
		ID: onlyonce.ID{Tenant: r.Tenant, Operation: r.Operation, Key: r.Key}, State: onlyonce.State(r.State), Fingerprint: r.Fingerprint,
		Owner: r.Owner, Attempt: int(r.Attempt), Fence: r.Fence, Error: r.Error, Final: r.Final,
		Result:    onlyonce.Result{Status: int(r.Status), Body: r.Body, Ref: r.Ref},
		CreatedAt: instant(r.CreatedAt), SettledAt: instant(r.SettledAt),
	}}
	if r.SettledAt != 0 {
		s.SettledFor = micros(r.Now - r.SettledAt)
	}
	var headerErr, stepsErr error
	s.Result.Header, headerErr = DecodeHeader(r.Header)
	s.Steps, stepsErr = DecodeSteps(r.Steps)
	err := errors.Join(r.Err, headerErr, stepsErr)
	switch s.State {
	case onlyonce.StateProcessing:
		s.LeaseLeft = micros(r.LeaseUntil - r.Now)
		s.Expired = r.ExpiresAt != 0 && r.ExpiresAt <= r.Now
	case onlyonce.StateCompleted, onlyonce.StateFailed, onlyonce.StateUnknown:
		if r.ExpiresAt != 0 {
			s.Expired = r.ExpiresAt <= r.Now
			s.KeepLeft = micros(r.ExpiresAt - r.Now)
		}
	case StateReleased:
		s.Expired = true
	default:
		err = errors.Join(err, fmt.Errorf("there is no state %q", r.State))
	}
	if err != nil {
		s.State, s.Corrupt, s.Error = onlyonce.StateUnknown, true, "the stored record can't be read: "+err.Error()
		s.LeaseLeft = 0
	}
	return s
}

func instant(µs int64) time.Time {
	if µs == 0 {
		return time.Time{}
	}
	return time.UnixMicro(µs).UTC()
}

// micros is a duration of so many microseconds, or the longest there is.
func micros(µs int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Microsecond)
	return time.Duration(min(max(µs, -most), most)) * time.Microsecond
}
