package record

import (
	"database/sql/driver"
	"fmt"
	"math"
	"strconv"
)

// A Reader reads one column after another. A value that can't be read is zero.
type Reader struct {
	Values []driver.Value
	Err    error // the first

	at int
}

// Columns is the number of columns that Read reads.
const Columns = 20

// Read reads a row of the lookup and list statements.
func Read(values []driver.Value) Row {
	r := Reader{Values: values}
	row := Row{
		CreatedAt: r.Int("created_at"), Tenant: r.Text("tenant"), Operation: r.Text("operation"), Key: r.Text("idem_key"),
		Fingerprint: r.Bytes("fingerprint"), State: r.Text("state"), Owner: r.Text("owner"), Attempt: r.Int("attempt"), Fence: r.Int("fence"),
		LeaseUntil: r.Int("lease_until"), SettledAt: r.Int("settled_at"), ExpiresAt: r.Int("expires_at"),
		Status: r.Int("status_code"), Final: r.Int("final") != 0, Ref: r.Text("result_ref"), Error: r.Text("error"),
		Header: r.Text("response_header"), Steps: r.Optional("steps"), Body: r.Bytes("response_body"), Now: r.Int("now"),
	}
	row.Err = r.Err
	return row
}

func (r *Reader) next() driver.Value {
	v := r.Values[r.at]
	r.at++
	return v
}

func (r *Reader) fail(column string, v driver.Value) {
	if r.Err == nil {
		r.Err = fmt.Errorf("%s is a %T", column, v)
	}
}

// Int reads a number; true is 1.
func (r *Reader) Int(column string) int64 {
	switch v := r.next().(type) {
	case int64:
		return v
	case uint64:
		return int64(min(v, math.MaxInt64))
	case bool:
		if v {
			return 1
		}
	case []byte: // as a driver's text protocol has it
		n, err := strconv.ParseInt(string(v), 10, 64)
		if err != nil {
			r.fail(column, v)
		}
		return n
	case nil:
	default:
		r.fail(column, v)
	}
	return 0
}

// Text reads a string.
func (r *Reader) Text(column string) string {
	switch v := r.next().(type) {
	case string:
		return v
	case []byte:
		return string(v)
	case nil:
	default:
		r.fail(column, v)
	}
	return ""
}

// Optional reads a string, or nil for NULL.
func (r *Reader) Optional(column string) any {
	if r.Values[r.at] == nil {
		r.at++
		return nil
	}
	return r.Text(column)
}

// Bytes reads bytes, which are nil only if the column is NULL.
func (r *Reader) Bytes(column string) []byte {
	switch v := r.next().(type) {
	case []byte:
		return append([]byte{}, v...)
	case string:
		return []byte(v)
	case nil:
	default:
		r.fail(column, v)
	}
	return nil
}
