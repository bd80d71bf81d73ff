package h1

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"time"
)

// tlsRecords follows the records that a TLS connection receives: RFC 8446, section
// 5.1.
type tlsRecords struct {
	net.Conn
	head [5]byte
	have int // of head
	left int // of the record
}

func (t *tlsRecords) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	for p = p[:n]; len(p) > 0; {
		if t.left > 0 {
			skip := min(t.left, len(p))
			t.left, p = t.left-skip, p[skip:]
			continue
		}
		copied := copy(t.head[t.have:], p)
		p = p[copied:]
		if t.have += copied; t.have == len(t.head) {
			t.have, t.left = 0, int(binary.BigEndian.Uint16(t.head[3:]))
		}
	}
	return n, err
}

// silent reports whether nothing is left of what TLS has received, not even a part
// of a record. What is still to be received, alive looks for.
func (c *conn) silent() bool {
	secure, ok := c.Conn.(*tls.Conn)
	if !ok {
		return true
	}
	var one [1]byte
	_ = c.SetReadDeadline(time.Unix(1, 0)) // only what is there
	n, err := secure.Read(one[:])
	_ = c.SetReadDeadline(time.Now().Add(slice))
	return n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && c.below.have == 0 && c.below.left == 0
}
