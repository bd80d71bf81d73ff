package sqlstore

import (
	"database/sql/driver"
	"errors"

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

// A row without which a store would run a command that has run, or two relays publish
// one message, is missing.
var (
	errNoFence      = errors.New("the table onlyonce_fence was emptied: restore its row, or INSERT INTO onlyonce_fence (one, floor) VALUES (1, 0)")
	errNoOutboxLock = errors.New("the table onlyonce_outbox_lock was emptied: INSERT INTO onlyonce_outbox_lock (one) VALUES (1)")
)
