// Package record contains the code that stores share if they keep a record as a row or as one
// value: how it becomes a record and a record becomes a row, and which record
// follows on which.
package record

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// A Key is an ID with its hash.
type Key struct {
	ID   onlyonce.ID
	Hash [32]byte
}

// KeyOf returns the key of an ID.
func KeyOf(id onlyonce.ID) Key { return Key{ID: id, Hash: id.Hash()} }

// StateReleased is the state of a row without a record, which is there for its
// fence alone.
const StateReleased = "released"

// A Row holds the columns of the statements "lookup" and "list", in their
// order. Instants are microseconds since 1970-01-01 UTC. A NULL is the zero
// value.
type Row struct {
	CreatedAt              int64
	Tenant, Operation, Key string
	Fingerprint            []byte // as EncodePrint makes it
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
	Header                 string // with the traceparent and the Keep of the result, see EncodeHeader; empty: none
	Steps                  any    // JSON as a string; nil: none
	Body                   []byte
	Now                    int64 // the store's clock

	Err error // why a column could not be read; nil: all were
}

// A Stored record is a row as it was read.
type Stored struct {
	onlyonce.Record
	Expired    bool          // the row is there for its fence alone
	As         string        // the state as the row has it, also if the record is corrupt
	SettledFor time.Duration // since it was settled
	At         int64         // the row's created_at, which Record.CreatedAt need not express
	StepsAs    any           // the steps as the row has them; nil: NULL
	Server     int64         // names the server that it was read from if that may lose it in a failover; 0: nothing does
	Damage     error         // why the row can't be read; nil: it can

	UnreadableFingerprint, UnreadableSteps bool // what of it can't be read
}

// IsSame reports whether two reads of a row found the same settlement, or the same claim.
func (s *Stored) IsSame(other *Stored) bool {
	return s != nil && other != nil && s.Owner == other.Owner && s.Fence == other.Fence && s.As == other.As && s.SettledAt.Equal(other.SettledAt)
}

// Outlasted reports whether the record was the same before a commit on its server, which does
// not have a name: then that commit covers it.
func (s *Stored) Outlasted(before *Stored) bool { return s.Server == 0 && s.IsSame(before) }

// MaxFence is the highest fence that a record may have, so that there is always a higher one.
const MaxFence = 1 << 62

// Check returns an error if the record must not be used for anything: because it is
// another command's, or because no attempt can get a higher fence.
func (s *Stored) Check(id onlyonce.ID) error {
	switch {
	case s.ID != id && !s.Corrupt:
		return ErrCollision
	case s.Fence > MaxFence:
		return ErrFence
	}
	return nil
}

// The errors of Check.
var (
	ErrCollision error = foundError("another command's record has the same hash")
	ErrFence     error = foundError("the record's fence is damaged, and leaves none above it: restore the row")
)

// A foundError says why a record that the store has can't be used. An integration that runs a
// command without its store must not run this one.
type foundError string

func (e foundError) Error() string { return string(e) }

// FoundRecord distinguishes the error from those of a store that can't be reached.
func (foundError) FoundRecord() {}

// Record makes the row a record. A row that can't be decoded becomes a corrupt record,
// unless its lease is alive, because then an attempt holds the command.
func (r *Row) Record() Stored {
	fingerprint, summary, printErr := DecodePrint(r.Fingerprint)
	s := Stored{As: r.State, At: r.CreatedAt, StepsAs: r.Steps, Record: onlyonce.Record{
		ID: onlyonce.ID{Tenant: r.Tenant, Operation: r.Operation, Key: r.Key}, State: onlyonce.State(r.State), Fingerprint: fingerprint, Summary: summary,
		Owner: r.Owner, Attempt: int(min(max(r.Attempt, 0), math.MaxInt32-1)), Fence: r.Fence, Error: r.Error, Final: r.Final,
		Result:    onlyonce.Result{Status: int(r.Status), Body: r.Body, Ref: r.Ref},
		CreatedAt: Instant(r.CreatedAt), SettledAt: Instant(r.SettledAt),
	}}
	if r.SettledAt != 0 {
		s.SettledFor = Between(r.SettledAt, r.Now)
	}
	var headerErr, stepsErr error
	headerErr = DecodeHeader(r.Header, &s.Result)
	steps, _ := r.Steps.(string)
	s.Steps, stepsErr = DecodeSteps(steps)
	err := errors.Join(r.Err, printErr, headerErr, stepsErr, r.checkNumbers(s.Result))
	switch s.State {
	case onlyonce.StateProcessing:
		s.LeaseLeft = Between(r.Now, r.LeaseUntil)
		s.Expired = r.ExpiresAt != 0 && r.ExpiresAt <= r.Now
	case onlyonce.StateCompleted, onlyonce.StateFailed, onlyonce.StateUnknown, onlyonce.StateRemembered:
		if r.ExpiresAt != 0 {
			s.Expired = r.ExpiresAt <= r.Now
			s.KeepLeft = Between(r.Now, r.ExpiresAt)
		}
	case StateReleased:
		s.Expired = true
	default:
		err = errors.Join(err, fmt.Errorf("there is no state %q", r.State))
	}
	if keep := s.Result.Keep; keep > 0 {
		s.Result.Keep = max(keep-max(s.SettledFor, 0), 0) // a clock may be behind the one that settled it
		if s.Result.Keep == 0 && err == nil {
			s.Record = s.Remembered()
		}
	}
	s.Damage, s.UnreadableFingerprint, s.UnreadableSteps = err, printErr != nil, stepsErr != nil
	if err != nil && (s.State != onlyonce.StateProcessing || s.LeaseLeft <= 0) {
		s.State, s.Corrupt, s.Error = onlyonce.StateUnknown, true, "the stored record can't be read: "+err.Error()
		s.LeaseLeft = 0
	}
	return s
}

// checkNumbers returns an error if the row has a number that no store writes.
func (r *Row) checkNumbers(result onlyonce.Result) error {
	if r.Attempt < 1 || r.Fence < 0 {
		return fmt.Errorf("the attempt is %d and the fence %d", r.Attempt, r.Fence)
	}
	return onlyonce.Settlement{State: onlyonce.StateCompleted, Result: result}.Check()
}

// The first and the last instant that everything which reads a record can express: JSON,
// for one, has years of four digits.
var (
	earliest = time.Date(1, time.January, 1, 0, 0, 0, 1000, time.UTC).UnixMicro() // not the zero Time
	latest   = time.Date(9999, time.December, 31, 23, 59, 59, 999999000, time.UTC).UnixMicro()
)

// Instant returns the instant so many microseconds after 1970, or the nearest one of
// the years 1 to 9999. 0 is the zero Time.
func Instant(µs int64) time.Time {
	if µs == 0 {
		return time.Time{}
	}
	return time.UnixMicro(min(max(µs, earliest), latest)).UTC()
}

// Place returns where in a list a record stands whose CreatedAt is from Instant. No record
// that was listed before it comes after it.
func Place(createdAt time.Time) int64 {
	if µs := createdAt.UnixMicro(); µs > earliest {
		return µs
	}
	return math.MinInt64
}

// Between returns how long it is from one instant to another, both in microseconds, or
// the longest duration there is in that direction.
func Between(from, to int64) time.Duration {
	const most = int64(math.MaxInt64) / int64(time.Microsecond)
	d := to - from
	switch {
	case to > from && (d < 0 || d > most):
		d = most
	case to < from && (d >= 0 || d < -most):
		d = -most
	}
	return time.Duration(d) * time.Microsecond
}
