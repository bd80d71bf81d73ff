package h1

import (
	"encoding/binary"
	"net"
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
