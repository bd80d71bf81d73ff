package inbound

import (
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/defaults"
)

// mostReadOn is how many connections that are closed while a request arrives are read at
// a time.
const mostReadOn = 1024

var readingOn atomic.Int32

// Close closes the connection. If the client is still sending a request that was
// rejected, Close first reads the rest for a while. Otherwise the client's system
// could see a reset and lose the response (RFC 9112, section 9.6).
func (c *scannedConn) Close() error {
	if c.closed.Swap(true) {
		return net.ErrClosed
	}
	if !c.within.Load() || !c.responded.Load() || c.raw.Load() {
		return c.Conn.Close()
	}
	if readingOn.Add(1) > mostReadOn || c.CloseWrite() != nil {
		readingOn.Add(-1)
		return c.Conn.Close()
	}
	_ = c.Conn.SetReadDeadline(time.Now().Add(defaults.ReadOnTime))
	go func() {
		defer readingOn.Add(-1)
		_, _ = io.CopyN(io.Discard, c.Conn, defaults.ReadOnBytes)
		_ = c.Conn.Close() // nobody would see the error
	}()
	return nil
}
