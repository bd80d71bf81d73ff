package onlyonce

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

// A canonical writes JSON documents in canonical form. It takes time in
// proportion to a document's length, times the logarithm of the members of an
// object that are out of order, times the levels of such objects.
type canonical struct {
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

var canonicals = sync.Pool{New: func() any { return new(canonical) }}

// release gives the buffers back for the next document, unless they are large,
// and lets go of everything that is the caller's.
func (c *canonical) release() {
	c.in = nil
	clear(c.choices)
	clear(c.parts)
	if cap(c.out)+cap(c.names)+cap(c.spare)+cap(c.chosen)+32*cap(c.members) <= maxPooled {
		canonicals.Put(c)
	}
}

// write returns the canonical form of doc and keeps what the fields select.
// Both are good until the next call.
func (c *canonical) write(doc []byte, fields ...string) ([]byte, error) {
	if err := c.setFields(fields); err != nil {
		return nil, err
	}
	if len(doc) > maxDocument {
		return nil, fault("more than 512 MiB", maxDocument)
	}
	if bytes.HasPrefix(doc, []byte("\ufeff")) {
		return nil, fault("a byte order mark", 0)
	}
	c.in, c.members, c.names, c.work = doc, c.members[:0], c.names[:0], 0
	c.out = slices.Grow(c.out[:0], len(doc)+8)
	i, err := c.choose(c.blank(0), maxDepth, trail{end: len(c.choices)})
	if err != nil {
		return nil, err
	}
	if i = c.blank(i); i < len(doc) {
		return nil, fault("more than one value", i)
	}
	return c.out, nil
}

func fault(what string, at int) error {
	return fmt.Errorf("onlyonce: canonical JSON: %s at byte %d", what, at)
}

// put writes one byte, for which there is room.
func (c *canonical) put(b byte) {
	n := len(c.out)
	c.out = c.out[:n+1]
	c.out[n] = b
}

// blank returns where the white space at i ends.
func (c *canonical) blank(i int) int {
	for i < len(c.in) && c.in[i] <= ' ' && (c.in[i] == ' ' || c.in[i] == '\n' || c.in[i] == '\r' || c.in[i] == '\t') {
		i++
	}
	return i
}

// peek returns the byte at i, or 0 at the end of the document.
func (c *canonical) peek(i int) byte {
	if i < len(c.in) {
		return c.in[i]
	}
	return 0
}

// value writes the value at i, which may open depth objects and arrays and is
// at the end of t, and returns where it ends.
func (c *canonical) value(i, depth int, t trail) (int, error) {
	switch b := c.peek(i); b {
	case '"':
		i, _, err := c.text(i)
		return i, err
	case '{', '[':
		if depth == 0 {
			return i, fault("more than "+strconv.Itoa(maxDepth)+" levels", i)
		}
		if b == '{' {
			return c.object(i, depth-1, t)
		}
		return c.array(i, depth-1, t)
	case 't':
		return c.literal(i, "true")
	case 'f':
		return c.literal(i, "false")
	case 'n':
		return c.literal(i, "null")
	default:
		return c.number(i)
	}
}

func (c *canonical) literal(i int, word string) (int, error) {
	end := i + len(word)
	if end > len(c.in) || string(c.in[i:end]) != word {
		return i, fault("no value", i)
	}
	c.out = append(c.out, word...)
	return end, nil
}

func (c *canonical) array(i, depth int, t trail) (int, error) {
	c.put('[')
	i = c.blank(i + 1)
	if c.peek(i) == ']' {
		c.put(']')
		return i + 1, nil
	}
	for n := 0; ; n++ {
		var err error
		if t.first < t.end {
			i, err = c.choose(i, depth, c.followIndex(t, n))
		} else {
			i, err = c.value(i, depth, t)
		}
		if err != nil {
			return i, err
		}
		i = c.blank(i)
		switch c.peek(i) {
		case ',':
			c.put(',')
			i = c.blank(i + 1)
		case ']':
			c.put(']')
			return i + 1, nil
		default:
			return i, fault("neither , nor ]", i)
		}
	}
}

func (c *canonical) object(i, depth int, t trail) (int, error) {
	c.put('{')
	i = c.blank(i + 1)
	if c.peek(i) == '}' {
		c.put('}')
		return i + 1, nil
	}
	first, sorted := len(c.members), true
	for n := first; ; n++ {
		var err error
		if i, err = c.member(i); err != nil {
			return i, err
		}
		sorted = sorted && (n == first || c.compare(&c.members[n-1], &c.members[n]) < 0)
		if t.first < t.end {
			i, err = c.choose(i, depth, c.follow(t, c.name(&c.members[n])))
		} else {
			i, err = c.value(i, depth, t)
		}
		if err != nil {
			return i, err
		}
		c.members[n].end = uint32(len(c.out))
		i = c.blank(i)
		switch c.peek(i) {
		case ',':
			c.put(',')
			i = c.blank(i + 1)
		case '}':
			if !sorted {
				if err = c.permute(c.members[first:]); err != nil {
					return i, err
				}
			}
			c.members = c.members[:first]
			c.put('}')
			return i + 1, nil
		default:
			return i, fault("neither , nor }", i)
		}
	}
}

// member writes a member's name and the colon, and returns where the value is.
func (c *canonical) member(at int) (int, error) {
	if c.peek(at) != '"' {
		return at, fault("no member name", at)
	}
	start := len(c.out)
	i, plain, err := c.text(at)
	if err != nil {
		return i, err
	}
	c.members = append(c.members, member{})
	m := &c.members[len(c.members)-1]
	m.start, m.at, m.plain = uint32(start), uint32(at), plain
	if plain {
		m.key, m.size = uint32(at+1), uint32(i-at-2)
		m.prefix = namePrefix(c.in[at+1:], i-at-2)
	} else {
		m.key = uint32(len(c.names))
		c.names = appendSortable(c.names, c.out[start+1:len(c.out)-1])
		m.size = uint32(len(c.names)) - m.key
		m.prefix = namePrefix(c.names[m.key:], int(m.size))
	}
	i = c.blank(i)
	if c.peek(i) != ':' {
		return i, fault("no colon", i)
	}
	c.put(':')
	return c.blank(i + 1), nil
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
func (c *canonical) permute(members []member) error {
	start := members[0].start
	c.sort(members)
	c.spare = c.spare[:0]
	for i := range members {
		m := &members[i]
		if i > 0 {
			if c.compare(&members[i-1], m) == 0 {
				return fault("a second member of the same name", int(max(members[i-1].at, m.at)))
			}
			c.spare = append(c.spare, ',')
		}
		c.spare = append(c.spare, c.out[m.start:m.end]...)
	}
	c.work += len(c.spare)
	copy(c.out[start:], c.spare)
	return nil
}

func (c *canonical) sort(members []member) {
	if len(members) > 16 {
		slices.SortFunc(members, func(a, b member) int { return c.compare(&a, &b) })
		return
	}
	for i := 1; i < len(members); i++ {
		m := members[i]
		j := i
		for ; j > 0 && c.compare(&members[j-1], &m) > 0; j-- {
			members[j] = members[j-1]
		}
		members[j] = m
	}
}

// compare orders two members by the UTF-16 code units of their names.
func (c *canonical) compare(a, b *member) int {
	if a.prefix != b.prefix {
		if a.prefix < b.prefix {
			return -1
		}
		return 1
	}
	return c.compareNames(a, b)
}

func (c *canonical) compareNames(a, b *member) int {
	c.work += int(min(a.size, b.size))
	return bytes.Compare(c.name(a), c.name(b))
}

// name returns a member's name as it sorts.
func (c *canonical) name(m *member) []byte {
	if m.plain {
		return c.in[m.key:][:m.size]
	}
	return c.names[m.key:][:m.size]
}
