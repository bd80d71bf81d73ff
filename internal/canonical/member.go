package canonical

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
)

// A member is a member of an object that has been written to out.
type member struct {
	prefix              uint64 // the name's first 8 bytes, as they sort
	start, end          uint32 // from the opening quote of the name to the end of the value
	offset              uint32 // of the name in the input
	nameStart, nameSize uint32 // the name in sortable form: in Writer.names, or in Writer.in if it is plain
	plain               bool   // the name is ASCII without escapes, and sorts as it is written
}

// member writes a member's name and the colon, and returns where the value is.
func (w *Writer) member(at int) (int, error) {
	if w.peek(at) != '"' {
		return at, fault("no member name", at)
	}
	start := len(w.out)
	i, plain, err := w.text(at)
	if err != nil {
		return i, err
	}
	w.members = append(w.members, member{})
	m := &w.members[len(w.members)-1]
	m.start, m.offset, m.plain = uint32(start), uint32(at), plain
	if plain {
		m.nameStart, m.nameSize = uint32(at+1), uint32(i-at-2)
		m.prefix = namePrefix(w.in[at+1:], i-at-2)
	} else {
		m.nameStart = uint32(len(w.names))
		w.names = appendSortable(w.names, w.out[start+1:len(w.out)-1])
		m.nameSize = uint32(len(w.names)) - m.nameStart
		m.prefix = namePrefix(w.names[m.nameStart:], int(m.nameSize))
	}
	i = w.skipSpace(i)
	if w.peek(i) != ':' {
		return i, fault("no colon", i)
	}
	w.writeByte(':')
	return w.skipSpace(i + 1), nil
}

// namePrefix returns the first 8 of the first n bytes of name, as a number that
// sorts like them.
func namePrefix(name []byte, n int) uint64 {
	if len(name) < 8 {
		var b [8]byte
		copy(b[:], name[:n])
		return binary.BigEndian.Uint64(b[:])
	}
	p := binary.BigEndian.Uint64(name)
	if n < 8 {
		p &= ^uint64(0) << (64 - 8*n)
	}
	return p
}

// appendSortable appends the string that canonical text represents, in UTF-8 except
// for the first byte of U+E000 to U+FFFF. That byte is raised, because in UTF-16 these
// characters sort after those that are written as surrogates.
func appendSortable(out, text []byte) []byte {
	for i := 0; i < len(text); i++ {
		b := text[i]
		switch {
		case b == '\\' && text[i+1] == 'u':
			b = byte(unhex(text[i+2 : i+6]))
			i += 5
		case b == '\\':
			i++
			b = text[i]
			if k := strings.IndexByte(controls, b); k >= 0 {
				b = byte('\b' + k)
			}
		}
		out = append(out, sortable(b))
	}
	return out
}

func sortable(b byte) byte {
	if b == 0xee || b == 0xef {
		return b + 0x10
	}
	return b
}

// reorder sorts the members of one object. They are the end of out, from the start of
// the first one.
func (w *Writer) reorder(members []member) error {
	start := members[0].start
	w.sort(members)
	w.spare = w.spare[:0]
	for i := range members {
		m := &members[i]
		if i > 0 {
			if w.compare(&members[i-1], m) == 0 {
				return fault("a second member of the same name", int(max(members[i-1].offset, m.offset)))
			}
			w.spare = append(w.spare, ',')
		}
		w.spare = append(w.spare, w.out[m.start:m.end]...)
	}
	w.sortedBytes += len(w.spare)
	copy(w.out[start:], w.spare)
	return nil
}

func (w *Writer) sort(members []member) {
	if len(members) > 16 {
		slices.SortFunc(members, func(a, b member) int { return w.compare(&a, &b) })
		return
	}
	for i := 1; i < len(members); i++ {
		m := members[i]
		j := i
		for ; j > 0 && w.compare(&members[j-1], &m) > 0; j-- {
			members[j] = members[j-1]
		}
		members[j] = m
	}
}

// compare orders two members by the UTF-16 code units of their names.
func (w *Writer) compare(a, b *member) int {
	if a.prefix != b.prefix {
		if a.prefix < b.prefix {
			return -1
		}
		return 1
	}
	return w.compareNames(a, b)
}

func (w *Writer) compareNames(a, b *member) int {
	w.sortedBytes += int(min(a.nameSize, b.nameSize))
	return bytes.Compare(w.name(a), w.name(b))
}

// name returns a member's name as it sorts.
func (w *Writer) name(m *member) []byte {
	if m.plain {
		return w.in[m.nameStart:][:m.nameSize]
	}
	return w.names[m.nameStart:][:m.nameSize]
}
