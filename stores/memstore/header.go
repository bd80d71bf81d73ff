package memstore

import "encoding/binary"

// headerCost is about what an unpacked header takes besides its text.
const headerCost = 512

// pack copies a result's body and header into one piece of memory. The header
// comes out as counts and length-prefixed strings: a record that is never
// replayed never pays for a map.
func pack(body []byte, header map[string][]string) (packedBody, packedHeader []byte) {
	size := len(body)
	values := 0
	if len(header) > 0 {
		size += 8
		for name, vs := range header {
			size += 8 + len(name)
			values += len(vs)
			for _, v := range vs {
				size += 4 + len(v)
			}
		}
	}
	if size == 0 {
		return nil, nil
	}
	b := append(make([]byte, 0, size), body...)
	n := len(b)
	if len(header) == 0 {
		return b, nil
	}
	b = appendLen(appendLen(b, len(header)), values)
	for name, vs := range header {
		b = appendLen(appendString(b, name), len(vs))
		for _, v := range vs {
			b = appendString(b, v)
		}
	}
	return b[:n:n], b[n:len(b):len(b)]
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
