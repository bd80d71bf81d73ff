package memstore

import "encoding/binary"

// pack copies a result's body and header into one piece of memory. The header is written as
// counts and length-prefixed strings, so that a record that is never replayed needs no map.
func pack(body []byte, header map[string][]string) (packedBody, packedHeader []byte) {
	var room [512]byte // most headers are small, and are gathered on the stack
	text := appendHeader(room[:0], header)
	if len(body)+len(text) == 0 {
		return nil, nil
	}
	n := len(body)
	b := make([]byte, n+len(text))
	copy(b, body)
	copy(b[n:], text)
	if len(text) == 0 {
		return b, nil
	}
	return b[:n:n], b[n:]
}

// appendHeader appends the number of names and the number of values, and then, for each
// name, the name, the number of its values, and the values.
func appendHeader(b []byte, header map[string][]string) []byte {
	if len(header) == 0 {
		return b
	}
	b = append(appendLen(b, len(header)), 0, 0, 0, 0)
	values := 0
	for name, vs := range header {
		b = appendLen(appendString(b, name), len(vs))
		for _, v := range vs {
			b = appendString(b, v)
		}
		values += len(vs)
	}
	binary.BigEndian.PutUint32(b[4:], uint32(values))
	return b
}

func appendLen(b []byte, n int) []byte {
	return binary.BigEndian.AppendUint32(b, uint32(n))
}

func appendString(b []byte, s string) []byte {
	return append(appendLen(b, len(s)), s...)
}

// unpack returns the header that pack packed.
func unpack(packed []byte) map[string][]string {
	text := string(packed)
	length := func() int {
		n := binary.BigEndian.Uint32(packed)
		packed, text = packed[4:], text[4:]
		return int(n)
	}
	str := func() string {
		n := length()
		s := text[:n]
		packed, text = packed[n:], text[n:]
		return s
	}
	names, values := length(), length()
	header := make(map[string][]string, names)
	all := make([]string, 0, values)
	for range names {
		name, first := str(), len(all)
		for range length() {
			all = append(all, str())
		}
		header[name] = all[first:len(all):len(all)]
	}
	return header
}
