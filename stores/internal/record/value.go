package record

import (
	"database/sql/driver"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// Decode makes a record of a row of the lookup and list statements.
func Decode(values []driver.Value) Stored {
	row := Read(values)
	return row.Record()
}

// NullBytes makes bytes a value that is NULL only if they are nil.
func NullBytes(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}

// NullText makes a string a value that is NULL if it is empty.
func NullText(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// ResultSize returns how many bytes the body, the header and the error of a settlement have.
func ResultSize(st *onlyonce.Settlement) int {
	size := len(st.Result.Body) + len(st.Error)
	for name, values := range st.Result.Header {
		size += len(name)
		for _, value := range values {
			size += len(value)
		}
	}
	return size
}

// MicrosCeil returns the microseconds after which a duration that begins now has passed. It
// adds a millisecond, because SQLite's clock counts milliseconds.
func MicrosCeil(d time.Duration) int64 { return d.Microseconds() + 1000 }

// Anonymous is how List names a parameter that has no number.
func Anonymous(int) string { return "?" }

// ReadUnresolved reads a row of the statement "unresolved".
func ReadUnresolved(v []driver.Value) (n int, oldest time.Duration, err error) {
	r := Reader{Values: v}
	n, oldest = int(r.Int("count")), time.Duration(max(r.Int("oldest"), 0))*time.Microsecond
	return n, oldest, r.Err
}
