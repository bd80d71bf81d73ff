package record

import (
	"encoding/binary"
	"errors"
	"strings"
)

// summarized begins a stored fingerprint that is followed by the summary of the request. The
// summary needs no column of its own, and costs nothing where there is none.
const summarized = "\x00summary:"

// EncodePrint returns the fingerprint and the summary of a request as one value: nil if it
// has neither, and the fingerprint itself if it has no summary.
func EncodePrint(fingerprint []byte, summary string) []byte {
	if summary == "" && !strings.HasPrefix(string(fingerprint), summarized) {
		return fingerprint
	}
	b := make([]byte, 0, len(summarized)+binary.MaxVarintLen64+len(fingerprint)+len(summary))
	b = append(b, summarized...)
	if fingerprint == nil {
		b = binary.AppendVarint(b, -1)
	} else {
		b = append(binary.AppendVarint(b, int64(len(fingerprint))), fingerprint...)
	}
	return append(b, summary...)
}

// DecodePrint undoes EncodePrint. The fingerprint is a part of b.
func DecodePrint(b []byte) (fingerprint []byte, summary string, err error) {
	if !strings.HasPrefix(string(b[:min(len(b), len(summarized))]), summarized) {
		return b, "", nil
	}
	rest := b[len(summarized):]
	n, size := binary.Varint(rest)
	if size <= 0 || n < -1 || n > int64(len(rest)-size) {
		return nil, "", errors.New("fingerprint: the value is cut off")
	}
	rest = rest[size:]
	if n == -1 {
		return nil, string(rest), nil
	}
	return rest[:n:n], string(rest[n:]), nil
}
