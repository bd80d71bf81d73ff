package sqlstore

import (
	"database/sql/driver"

	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// A stored record is a row as it was read.
type stored = record.Stored

// decode reads a row of the lookup and list statements.
func decode(values []driver.Value) stored {
	row := record.Read(values)
	return row.Record()
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
