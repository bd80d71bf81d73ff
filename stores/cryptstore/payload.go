package cryptstore

import (
	"encoding/binary"
	"maps"
	"slices"
)

// A payload is the part of a result that is sealed.
type payload struct {
	header map[string][]string
	body   []byte

	// removed names the steps that the record no longer has, although its store still does: they
	// could not be read when it was settled, or they were left behind by Rekey.
	removed []string
}

// encode returns the number of removed steps and their names, the number of names in the
// header and for each of them the number of values and the values, and the body. The header
// and the body begin with a 0 if they are nil.
func (p *payload) encode() []byte {
	n := 16 + len(p.body)
	for name, values := range p.header {
		n += 10 + len(name)
		for _, v := range values {
			n += 5 + len(v)
		}
	}
	b := appendTexts(make([]byte, 0, n), p.removed)
	if p.header == nil {
		b = append(b, 0)
	} else {
		b = binary.AppendUvarint(b, uint64(len(p.header))+1)
		for _, name := range slices.Sorted(maps.Keys(p.header)) {
			b = appendTexts(appendText(b, name), p.header[name])
		}
	}
	if p.body == nil {
		return append(b, 0)
	}
	return append(append(b, 1), p.body...)
}

func appendTexts(b []byte, texts []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(texts)))
	for _, s := range texts {
		b = appendText(b, s)
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// decodePayload undoes encode. The body is a part of b.
func decodePayload(b []byte) (p payload, err error) {
	r := reader{rest: b}
	p.removed = r.texts()
	if n := r.count(); n > 0 {
		p.header = make(map[string][]string, min(n-1, fewTexts))
		for i := 1; i < n && !r.cut; i++ {
			name := r.text()
			p.header[name] = r.texts()
		}
	}
	switch {
	case r.cut || len(r.rest) == 0 || r.rest[0] > 1 || r.rest[0] == 0 && len(r.rest) > 1:
		return payload{}, errPayload
	case r.rest[0] == 1:
		p.body = r.rest[1:len(r.rest):len(r.rest)]
	}
	return p, nil
}

// fewTexts is for how many texts there is room before they have been read.
const fewTexts = 16

// A reader reads the parts of a payload one after another. A part that cannot be read is zero.
type reader struct {
	rest []byte
	cut  bool // something could not be read
}

// count reads a number of things that can't be larger than the number of bytes that are left.
func (r *reader) count() int {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 || n > uint64(len(r.rest)) {
		r.rest, r.cut = nil, true
		return 0
	}
	r.rest = r.rest[size:]
	return int(n)
}

func (r *reader) text() string {
	n := r.count()
	if n > len(r.rest) {
		r.rest, r.cut = nil, true
		return ""
	}
	s := string(r.rest[:n])
	r.rest = r.rest[n:]
	return s
}

func (r *reader) texts() []string {
	n := r.count()
	if n == 0 {
		return nil
	}
	all := make([]string, 0, min(n, fewTexts))
	for len(all) < n && !r.cut {
		all = append(all, r.text())
	}
	return all
}
