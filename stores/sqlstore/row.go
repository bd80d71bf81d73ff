package sqlstore

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

var errCollision = errors.New("another command's record has the same hash")

// A stored record is a row as it was read.
type stored struct {
	onlyonce.Record
	expired bool
}

// A rowReader reads one column after another. What can't be read is left zero.
type rowReader struct {
	values []driver.Value
	at     int
	err    error // the first
}

func (r *rowReader) next() driver.Value {
	v := r.values[r.at]
	r.at++
	return v
}

func (r *rowReader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *rowReader) int(column string) int64 {
	switch v := r.next().(type) {
	case int64:
		return v
	case nil:
		return 0
	default:
		r.fail(fmt.Errorf("%s is a %T", column, v))
		return 0
	}
}

func (r *rowReader) text(column string) string {
	switch v := r.next().(type) {
	case string:
		return v
	case []byte:
		return string(v)
	case nil:
		return ""
	default:
		r.fail(fmt.Errorf("%s is a %T", column, v))
		return ""
	}
}

func (r *rowReader) bytes(column string) []byte {
	switch v := r.next().(type) {
	case []byte:
		return append([]byte{}, v...) // not nil, for it is not NULL
	case string:
		return []byte(v)
	case nil:
		return nil
	default:
		r.fail(fmt.Errorf("%s is a %T", column, v))
		return nil
	}
}

func (r *rowReader) time(column string) time.Time {
	if µs := r.int(column); µs != 0 {
		return time.UnixMicro(µs).UTC()
	}
	return time.Time{}
}

// decode reads a row of the lookup and list statements.
func decode(values []driver.Value) stored {
	r := &rowReader{values: values}
	var s stored
	s.CreatedAt = r.time("created_at")
	s.ID = onlyonce.ID{Tenant: r.text("tenant"), Operation: r.text("operation"), Key: r.text("idem_key")}
	s.Fingerprint = r.bytes("fingerprint")
	s.State = onlyonce.State(r.text("state"))
	s.Owner = r.text("owner")
	s.Attempt = int(r.int("attempt"))
	s.Fence = r.int("fence")
	lease := r.int("lease_until")
	s.SettledAt = r.time("settled_at")
	expires, never := r.int("expires_at"), r.values[r.at-1] == nil
	s.Result.Status = int(r.int("status_code"))
	s.Final = r.int("final") != 0
	s.Result.Ref = r.text("result_ref")
	s.Error = r.text("error")
	s.Result.Header = r.header()
	s.Steps = r.steps()
	s.Result.Body = r.bytes("response_body")
	now := r.int("now")

	switch s.State {
	case onlyonce.StateProcessing:
		s.LeaseLeft = micros(lease - now)
	case onlyonce.StateCompleted, onlyonce.StateFailed, onlyonce.StateUnknown:
		s.expired = !never && expires <= now
		if !never {
			s.KeepLeft = micros(expires - now)
		}
	default:
		r.fail(fmt.Errorf("there is no state %q", s.State))
	}
	if r.err != nil {
		s.State, s.Corrupt, s.Error = onlyonce.StateUnknown, true, "the stored record can't be read: "+r.err.Error()
		s.LeaseLeft = 0
	}
	return s
}

func (r *rowReader) header() map[string][]string {
	text := r.text("response_header")
	if text == "" {
		return nil
	}
	h, err := decodeHeader(text)
	if err != nil {
		r.fail(err)
	}
	return h
}

func (r *rowReader) steps() map[string][]byte {
	text := r.text("steps")
	if text == "" {
		return nil
	}
	steps, err := decodeSteps(text)
	if err != nil {
		r.fail(err)
	}
	return steps
}

// micros is a duration of so many microseconds, or the longest there is.
func micros(µs int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Microsecond)
	return time.Duration(min(max(µs, -most), most)) * time.Microsecond
}

// blob makes bytes a value that is NULL only if they are nil.
func blob(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}

// text makes a string a value that is NULL if it is empty.
func text(s string) any {
	if s == "" {
		return nil
	}
	return s
}
