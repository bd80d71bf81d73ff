//go:build !unix

package h1

import (
	"errors"
	"os"
	"time"
)

// alive reports whether the connection still stands, and nothing has come that
// nobody asked for. It waits for a moment.
func (c *conn) alive() bool {
	var one [1]byte
	_ = c.SetReadDeadline(time.Now().Add(100 * time.Microsecond)) // an error shows when it is read
	n, err := c.Read(one[:])
	_ = c.SetReadDeadline(time.Now().Add(slice))
	return n == 0 && errors.Is(err, os.ErrDeadlineExceeded)
}
