//go:build !unix

package h1

import (
	"errors"
	"os"
	"time"
)

// alive reports whether the connection is open and has received no unexpected bytes.
// It waits for up to 100 µs.
func (c *conn) alive() bool {
	var one [1]byte
	_ = c.SetReadDeadline(time.Now().Add(100 * time.Microsecond)) // if it fails, so does Read
	n, err := c.Read(one[:])
	_ = c.SetReadDeadline(time.Now().Add(pollInterval))
	return n == 0 && errors.Is(err, os.ErrDeadlineExceeded)
}
