package inbound

import (
	"io"
	"net"
	"sync/atomic"
	"time"
)

const (
	// readOnBytes and readOnTime limit how much is read, and for how long, from a
	// connection that is closed while a request arrives.
	readOnBytes = 16 << 20
	readOnTime  = 5 * time.Second
	// mostReadOn is how many such connections are read at a time.
	mostReadOn = 1024
)

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
	_ = c.Conn.SetReadDeadline(time.Now().Add(readOnTime))
	go func() {
		defer readingOn.Add(-1)
		_, _ = io.CopyN(io.Discard, c.Conn, readOnBytes)
		_ = c.Conn.Close() // nobody would see the error
	}()
	return nil
}
