// Package canonical writes JSON documents in one canonical form: that of RFC 8785,
// but with exact numbers. Documents that mean the same have the same form.
package canonical

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

const (
	maxDocument = 512 << 20          // bytes; its canonical form, at most six times as long, has offsets of 32 bits
	maxDepth    = 64                 // objects and arrays open at once
	maxExponent = 999999999999999999 // of a number with one digit before the point, up or down
	maxPooled   = 1 << 20            // bytes of buffers that are kept for the next document
)

// A Writer writes JSON documents in canonical form, one after the other. It takes
// time in proportion to a document's length, times the logarithm of the members of
// an object that are out of order, times the levels of such objects.
type Writer struct {
	in      []byte
	out     []byte   // has room for what is left of in, and 8 bytes
	members []member // of the objects that are open
	names   []byte   // of members that are not plain
	spare   []byte
	choices []choice
	chosen  []byte
	parts   [][]byte
	work    int // bytes compared and moved to put members in order
}

// A member is one of an object's, as it stands in out.
type member struct {
	prefix     uint64 // the name's first 8 bytes, as they sort
	start, end uint32 // from the opening quote of the name to the end of the value
	at         uint32 // where in is the name
	key, size  uint32 // where the name is as it sorts: in names, or if it is plain, in in
	plain      bool   // the name is ASCII without escapes, and sorts as it is written
}

var writers = sync.Pool{New: func() any { return new(Writer) }}

// NewWriter returns a Writer, which may have the buffers of one that was released.
func NewWriter() *Writer { return writers.Get().(*Writer) }

// Release gives the buffers back for the next document, unless they are large,
// and lets go of everything that is the caller's.
func (w *Writer) Release() {
	w.in = nil
	clear(w.choices)
	clear(w.parts)
	if cap(w.out)+cap(w.names)+cap(w.spare)+cap(w.chosen)+32*cap(w.members) <= maxPooled {
		writers.Put(w)
	}
}

// Write returns the canonical form of doc, and keeps for Selected what the fields,
// which are JSON Pointers, select in it. The form is good until the next call.
// Documents that are not JSON or have no single reading, and malformed pointers, are
// errors.
func (w *Writer) Write(doc []byte, fields ...string) ([]byte, error) {
	if err := w.setFields(fields); err != nil {
		return nil, err
	}
	if len(doc) > maxDocument {
		return nil, fault("more than 512 MiB", maxDocument)
	}
	if bytes.HasPrefix(doc, []byte("\ufeff")) {
		return nil, fault("a byte order mark", 0)
	}
	w.in, w.members, w.names, w.work = doc, w.members[:0], w.names[:0], 0
	w.out = slices.Grow(w.out[:0], len(doc)+8)
	i, err := w.choose(w.blank(0), maxDepth, trail{end: len(w.choices)})
	if err != nil {
		return nil, err
	}
	if i = w.blank(i); i < len(doc) {
		return nil, fault("more than one value", i)
	}
	return w.out, nil
}

func fault(what string, at int) error {
	return fmt.Errorf("onlyonce: canonical JSON: %s at byte %d", what, at)
}

// put writes one byte, for which there is room.
func (w *Writer) put(b byte) {
	n := len(w.out)
	w.out = w.out[:n+1]
	w.out[n] = b
}

// blank returns where the white space at i ends.
func (w *Writer) blank(i int) int {
	for i < len(w.in) && w.in[i] <= ' ' && (w.in[i] == ' ' || w.in[i] == '\n' || w.in[i] == '\r' || w.in[i] == '\t') {
		i++
	}
	return i
}

// peek returns the byte at i, or 0 at the end of the document.
func (w *Writer) peek(i int) byte {
	if i < len(w.in) {
		return w.in[i]
	}
	return 0
}

// value writes the value at i, which may open depth objects and arrays and is
// at the end of t, and returns where it ends.
func (w *Writer) value(i, depth int, t trail) (int, error) {
	switch b := w.peek(i); b {
	case '"':
		i, _, err := w.text(i)
		return i, err
	case '{', '[':
		if depth == 0 {
			return i, fault("more than "+strconv.Itoa(maxDepth)+" levels", i)
		}
		if b == '{' {
			return w.object(i, depth-1, t)
		}
		return w.array(i, depth-1, t)
	case 't':
		return w.literal(i, "true")
	case 'f':
		return w.literal(i, "false")
	case 'n':
		return w.literal(i, "null")
	default:
		return w.number(i)
	}
}

func (w *Writer) literal(i int, word string) (int, error) {
	end := i + len(word)
	if end > len(w.in) || string(w.in[i:end]) != word {
		return i, fault("no value", i)
	}
	w.out = append(w.out, word...)
	return end, nil
}

func (w *Writer) array(i, depth int, t trail) (int, error) {
	w.put('[')
	i = w.blank(i + 1)
	if w.peek(i) == ']' {
		w.put(']')
		return i + 1, nil
	}
	for n := 0; ; n++ {
		var err error
		if t.first < t.end {
			i, err = w.choose(i, depth, w.followIndex(t, n))
		} else {
			i, err = w.value(i, depth, t)
		}
		if err != nil {
			return i, err
		}
		i = w.blank(i)
		switch w.peek(i) {
		case ',':
			w.put(',')
			i = w.blank(i + 1)
		case ']':
			w.put(']')
			return i + 1, nil
		default:
			return i, fault("neither , nor ]", i)
		}
	}
}

func (w *Writer) object(i, depth int, t trail) (int, error) {
	w.put('{')
	i = w.blank(i + 1)
	if w.peek(i) == '}' {
		w.put('}')
		return i + 1, nil
	}
	first, sorted := len(w.members), true
	for n := first; ; n++ {
		var err error
		if i, err = w.member(i); err != nil {
			return i, err
		}
		sorted = sorted && (n == first || w.compare(&w.members[n-1], &w.members[n]) < 0)
		if t.first < t.end {
			i, err = w.choose(i, depth, w.follow(t, w.name(&w.members[n])))
		} else {
			i, err = w.value(i, depth, t)
		}
		if err != nil {
			return i, err
		}
		w.members[n].end = uint32(len(w.out))
		i = w.blank(i)
		switch w.peek(i) {
		case ',':
			w.put(',')
			i = w.blank(i + 1)
		case '}':
			if !sorted {
				if err = w.permute(w.members[first:]); err != nil {
					return i, err
				}
			}
			w.members = w.members[:first]
			w.put('}')
			return i + 1, nil
		default:
			return i, fault("neither , nor }", i)
		}
	}
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
	m.start, m.at, m.plain = uint32(start), uint32(at), plain
	if plain {
		m.key, m.size = uint32(at+1), uint32(i-at-2)
		m.prefix = namePrefix(w.in[at+1:], i-at-2)
	} else {
		m.key = uint32(len(w.names))
		w.names = appendSortable(w.names, w.out[start+1:len(w.out)-1])
		m.size = uint32(len(w.names)) - m.key
		m.prefix = namePrefix(w.names[m.key:], int(m.size))
	}
	i = w.blank(i)
	if w.peek(i) != ':' {
		return i, fault("no colon", i)
	}
	w.put(':')
	return w.blank(i + 1), nil
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

// appendSortable appends what canonical text stands for, in UTF-8 but for the
// first byte of U+E000 to U+FFFF: in UTF-16 these sort after all that
// surrogates stand for.
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

// permute puts the members of one object, which are all that is in out from
// the first one's start, in order.
func (w *Writer) permute(members []member) error {
	start := members[0].start
	w.sort(members)
	w.spare = w.spare[:0]
	for i := range members {
		m := &members[i]
		if i > 0 {
			if w.compare(&members[i-1], m) == 0 {
				return fault("a second member of the same name", int(max(members[i-1].at, m.at)))
			}
			w.spare = append(w.spare, ',')
		}
		w.spare = append(w.spare, w.out[m.start:m.end]...)
	}
	w.work += len(w.spare)
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
	w.work += int(min(a.size, b.size))
	return bytes.Compare(w.name(a), w.name(b))
}

// name returns a member's name as it sorts.
func (w *Writer) name(m *member) []byte {
	if m.plain {
		return w.in[m.key:][:m.size]
	}
	return w.names[m.key:][:m.size]
}
