//go:build unix

package h1

import "syscall"

// alive reports whether the connection is open and has received no unexpected bytes.
// It does not wait.
func (c *conn) alive() bool {
	if c.raw == nil {
		return false
	}
	var one [1]byte
	var n int
	var received error
	err := c.raw.Read(func(fd uintptr) bool {
		n, received = syscall.Read(int(fd), one[:])
		return true
	})
	return err == nil && n < 0 && (received == syscall.EAGAIN || received == syscall.EWOULDBLOCK) // syscall.Read returns nothing else
}
