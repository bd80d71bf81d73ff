package value

import (
	"encoding/binary"
	"math"
)

// headVersion is the version of every head.
const headVersion = '1'

// FixedHead is how many bytes a head has before its numbers.
const FixedHead = 3 + OwnerSize

// A Head points to the fields of a store that are the fixed part of a record's value, in
// the order in which they are written. Numbers are big-endian.
type Head struct {
	State  *byte
	Flags  []*bool // up to four
	Owner  *string
	Longs  []*int64
	Shorts []*int32
}

// Append appends the fields to b.
func (h Head) Append(b []byte) []byte {
	flags := byte('0')
	for i, is := range h.Flags {
		if *is {
			flags |= 1 << i
		}
	}
	b = append(append(b, headVersion, *h.State, flags), *h.Owner...)
	for _, n := range h.Longs {
		b = binary.BigEndian.AppendUint64(b, uint64(*n))
	}
	for _, n := range h.Shorts {
		b = binary.BigEndian.AppendUint32(b, uint32(*n))
	}
	return b
}

// Parse sets the fields to those of data. It reports false, and sets nothing, if data is too
// short for them or of another version.
func (h Head) Parse(data []byte) bool {
	if len(data) < FixedHead+8*len(h.Longs)+4*len(h.Shorts) || data[0] != headVersion {
		return false
	}
	*h.State = data[1]
	for i, is := range h.Flags {
		*is = data[2]&(1<<i) != 0
	}
	*h.Owner = string(data[3:FixedHead])
	at := data[FixedHead:]
	for _, n := range h.Longs {
		*n, at = int64(binary.BigEndian.Uint64(at)), at[8:]
	}
	for _, n := range h.Shorts {
		*n, at = int32(binary.BigEndian.Uint32(at)), at[4:]
	}
	return true
}

// Later adds a duration to an instant; either may be damaged.
func Later(at, d int64) int64 {
	if d > 0 && at > math.MaxInt64-d {
		return math.MaxInt64
	}
	return at + d
}
