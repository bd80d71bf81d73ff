// Package breakoff ends a response so that its client sees that it is not complete.
package breakoff

import (
	"net"
	"net/http"
	"time"
)

// Response makes net/http send no more of the response to r. A panic with
// http.ErrAbortHandler does the same, but a function around the handler may recover from it,
// as gin.Recovery does. Over HTTP/1.0, a response without a length ends when its connection
// ends, and so does one that is broken off. Its connection is therefore reset.
func Response(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetWriteDeadline(longAgo) // not every ResponseWriter can
	if r.ProtoAtLeast(1, 1) {
		return
	}
	for { // gin's does not give the connection away once a response has begun
		wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			break
		}
		w = wrapper.Unwrap()
	}
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		reset(conn)
		_ = conn.Close()
	}
}

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// reset closes the connection below conn with a reset, so that no layer above it sends an
// end of its own.
func reset(conn net.Conn) {
	switch c := conn.(type) {
	case interface{ SetLinger(int) error }:
		_ = c.SetLinger(0)
		_ = conn.Close()
	case interface{ NetConn() net.Conn }:
		reset(c.NetConn())
	}
}
