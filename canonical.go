package onlyonce

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf16"
	"unicode/utf8"
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

// text writes the string whose opening quote is at i. It returns where the
// string ends and whether it is ASCII without escapes.
func (c *canonical) text(i int) (end int, plain bool, err error) {
	in, out, n, start := c.in, c.out[:cap(c.out)], len(c.out), i
	out[n] = '"'
	i, n, plain = i+1, n+1, true
	var high uint64
	for {
		switch {
		case i+8 <= len(in):
			w := binary.LittleEndian.Uint64(in[i:])
			binary.LittleEndian.PutUint64(out[n:], w)
			s := specialByte(w)
			if s == 0 {
				high |= w
				i, n = i+8, n+8
				continue
			}
			high |= w & (s&-s - 1)
			k := bits.TrailingZeros64(s) >> 3
			i, n = i+k, n+k
		case i == len(in):
			return i, false, fault("no end of a string", i)
		case in[i] != '"' && in[i] != '\\' && in[i] >= ' ':
			high |= uint64(in[i])
			out[n] = in[i]
			i, n = i+1, n+1
			continue
		}
		switch in[i] {
		case '"':
			if high&highBits != 0 {
				plain = false
				if !utf8.Valid(in[start:i]) {
					return i, false, fault("invalid UTF-8", start+invalidUTF8(in[start:i]))
				}
			}
			out[n] = '"'
			c.out = out[:n+1]
			return i + 1, plain, nil
		case '\\':
			plain = false
			c.out = out[:n]
			if i, err = c.escape(i); err != nil {
				return i, false, err
			}
			n = len(c.out)
		default:
			return i, false, fault("a control character in a string", i)
		}
	}
}

const (
	lowBits  = 0x0101010101010101
	highBits = 0x8080808080808080
)

// specialByte has a bit set in the lowest byte of w that is a quote, a backslash or
// a control character, and none in the bytes below it.
func specialByte(w uint64) uint64 {
	quote, slash := w^(lowBits*'"'), w^(lowBits*'\\')
	return ((quote-lowBits)&^quote | (slash-lowBits)&^slash | (w-lowBits*' ')&^w) & highBits
}

// invalidUTF8 returns where s stops being UTF-8.
func invalidUTF8(s []byte) int {
	i := 0
	for i < len(s) {
		r, n := utf8.DecodeRune(s[i:])
		if r == utf8.RuneError && n == 1 {
			break
		}
		i += n
	}
	return i
}

// escape writes what the escape at i stands for and returns where it ends.
func (c *canonical) escape(i int) (int, error) {
	switch b := c.peek(i + 1); b {
	case '/':
		c.put('/')
		return i + 2, nil
	case '"', '\\', 'b', 'f', 'n', 'r', 't':
		c.out = append(c.out, '\\', b)
		return i + 2, nil
	case 'u':
		r, end := c.unit(i)
		if utf16.IsSurrogate(r) {
			low, next := c.unit(end)
			r, end = utf16.DecodeRune(r, low), next
			if r == utf8.RuneError {
				return i, fault("a lone surrogate", i)
			}
		}
		if r >= 0 {
			c.out = appendQuoted(c.out, r)
			return end, nil
		}
	}
	return i, fault("an unknown escape", i)
}

// unit returns the UTF-16 code unit that is written as \uXXXX at i, or -1, and
// where it ends.
func (c *canonical) unit(i int) (rune, int) {
	if i+6 > len(c.in) || c.in[i] != '\\' || c.in[i+1] != 'u' {
		return -1, i
	}
	return unhex(c.in[i+2 : i+6]), i + 6
}

func unhex(s []byte) rune {
	var r rune
	for _, b := range s {
		switch {
		case '0' <= b && b <= '9':
			b -= '0'
		case 'a' <= b|0x20 && b|0x20 <= 'f':
			b = b | 0x20 - 'a' + 10
		default:
			return -1
		}
		r = r<<4 | rune(b)
	}
	return r
}

const controls = "btnvfr" // what stands for U+0008 to U+000D in an escape; \v is none

// appendQuoted appends r as canonical strings have it.
func appendQuoted(out []byte, r rune) []byte {
	switch {
	case r == '"' || r == '\\':
		return append(out, '\\', byte(r))
	case '\b' <= r && r <= '\r' && r != '\v':
		return append(out, '\\', controls[r-'\b'])
	case r < ' ':
		return append(out, '\\', 'u', '0', '0', '0'+byte(r>>4), "0123456789abcdef"[r&15])
	}
	return utf8.AppendRune(out, r)
}

// number writes the number at i and returns where it ends.
func (c *canonical) number(i int) (int, error) {
	start := i
	if c.peek(i) == '-' {
		i++
	}
	first := i
	i = c.digits(i)
	switch {
	case i == first:
		return i, fault("no value", start)
	case c.in[first] == '0' && i > first+1:
		return i, fault("a leading zero", first)
	}
	point := i
	if c.peek(i) == '.' {
		if i = c.digits(i + 1); i == point+1 {
			return i, fault("no digit", i)
		}
	}
	text := c.in[first:i]
	if c.peek(i)|0x20 != 'e' && canonicalDecimal(text, point-first) {
		c.out = append(c.out, c.in[start:i]...)
		return i, nil
	}
	exp, i, err := c.exponent(i)
	if err != nil {
		return i, err
	}
	if !c.decimal(start < first, text, point-first, exp) {
		return i, fault("an exponent of more than 18 digits", start)
	}
	c.out = slices.Grow(c.out, len(c.in)-i+8)
	return i, nil
}

func (c *canonical) digits(i int) int {
	for i < len(c.in) && c.in[i]-'0' <= 9 {
		i++
	}
	return i
}

// exponent returns the exponent at i, or 0 if there is none, and where it ends.
// One that no length of the number can bring into range may come back as far.
func (c *canonical) exponent(i int) (int64, int, error) {
	if c.peek(i)|0x20 != 'e' {
		return 0, i, nil
	}
	const far = 4 * maxExponent
	i++
	negative := c.peek(i) == '-'
	if negative || c.peek(i) == '+' {
		i++
	}
	end := c.digits(i)
	if end == i {
		return 0, i, fault("no digit", i)
	}
	var exp int64
	for _, b := range c.in[i:end] {
		if exp > far/10 {
			exp = far
			break
		}
		exp = exp*10 + int64(b-'0')
	}
	if negative {
		exp = -exp
	}
	return exp, end, nil
}

const zeros = "000000000000000000000" // as many digits as ECMAScript writes in front of a point

// canonicalDecimal reports whether a number that is written without an
// exponent is canonical. The point is at the end if it has none.
func canonicalDecimal(text []byte, point int) bool {
	if point == len(text) {
		return point <= len(zeros) && text[0] != '0'
	}
	return point <= len(zeros) && text[len(text)-1] != '0' && (text[0] != '0' || text[point+1] != '0')
}

// decimal writes the number text × 10^exp, in ECMAScript's layout with all its
// digits. It reports whether the number's own exponent is in range.
func (c *canonical) decimal(negative bool, text []byte, point int, exp int64) bool {
	lead := 0
	for lead < len(text) && (text[lead] == '0' || lead == point) {
		lead++
	}
	if lead == len(text) {
		c.out = append(c.out, '0')
		return true
	}
	tail := len(text)
	for text[tail-1] == '0' || tail-1 == point {
		tail--
	}
	d := c.spare[:0]
	if point <= lead || point >= tail {
		d = append(d, text[lead:tail]...)
	} else {
		d = append(append(d, text[lead:point]...), text[point+1:tail]...)
	}
	c.spare = d
	n := exp + int64(point-lead) // the number is 0.d × 10^n
	if point < lead {
		n++
	}
	if n-1 > maxExponent || n-1 < -maxExponent {
		return false
	}
	if negative {
		c.put('-')
	}
	c.out = appendDecimal(c.out, d, n)
	return true
}

// appendDecimal appends 0.d × 10^n, where d neither starts nor ends with 0.
func appendDecimal(out, d []byte, n int64) []byte {
	k := int64(len(d))
	switch {
	case k <= n && n <= 21:
		return append(append(out, d...), zeros[:n-k]...)
	case 0 < n && n <= 21:
		return append(append(append(out, d[:n]...), '.'), d[n:]...)
	case -6 < n && n <= 0:
		return append(append(append(out, "0."...), zeros[:-n]...), d...)
	}
	out = append(out, d[0])
	if k > 1 {
		out = append(append(out, '.'), d[1:]...)
	}
	out = append(out, 'e')
	if n > 0 {
		out = append(out, '+')
	}
	return strconv.AppendInt(out, n-1, 10)
}
