package h1

import (
	"encoding/binary"
	"net"
)

// tlsRecords tracks where the records of a TLS connection begin and end as they are
// received (RFC 8446, section 5.1).
type tlsRecords struct {
	net.Conn
	head [5]byte
	have int // bytes of head that were received
	left int // bytes of the record that were not
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
