package fingerprint

import "encoding/binary"

// appendParts appends the number of the parts and each of them.
func appendParts(b []byte, parts []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(parts)))
	for _, part := range parts {
		b = appendPart(b, part)
	}
	return b
}

// appendPart appends a part and its length, so that no two lists of parts look
// the same.
func appendPart(b []byte, part string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(part))), part...)
}
