// Package canonical writes JSON documents in one canonical form: that of RFC 8785,
// but with exact numbers. Documents that mean the same have the same form.
package canonical

import (
	"bytes"
	"slices"
	"strconv"
)

const (
	maxDocument = 512 << 20 // bytes; its canonical form, at most six times as long, has offsets of 32 bits
	maxDepth    = 64        // objects and arrays open at once
)

// Write returns the canonical form of doc, and keeps for Selected the values that the
// fields, which are JSON Pointers, select in it. The form is valid until the next call.
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
	w.in, w.members, w.names, w.sortedBytes = doc, w.members[:0], w.names[:0], 0
	w.out = slices.Grow(w.out[:0], len(doc)+8)
	i, err := w.choose(w.skipSpace(0), maxDepth, prefixMatch{end: len(w.selections)})
	if err != nil {
		return nil, err
	}
	if i = w.skipSpace(i); i < len(doc) {
		return nil, fault("more than one value", i)
	}
	return w.out, nil
}

// choose is like value, and keeps a copy of the value if a pointer selects it.
func (w *Writer) choose(i, depth int, t prefixMatch) (int, error) {
	start := len(w.out)
	end, err := w.value(i, depth, t)
	if err != nil || t.first == t.end {
		return end, err
	}
	if at := &w.selections[t.first]; len(at.pointer) == t.done {
		at.from = len(w.chosen)
		w.chosen = append(w.chosen, w.out[start:]...)
		at.to = len(w.chosen)
	}
	return end, nil
}

// value writes the value at i and returns where it ends. The value may nest depth
// objects and arrays. t has the selections on the path to it.
func (w *Writer) value(i, depth int, t prefixMatch) (int, error) {
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

func (w *Writer) array(i, depth int, t prefixMatch) (int, error) {
	w.writeByte('[')
	i = w.skipSpace(i + 1)
	if w.peek(i) == ']' {
		w.writeByte(']')
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
		i = w.skipSpace(i)
		switch w.peek(i) {
		case ',':
			w.writeByte(',')
			i = w.skipSpace(i + 1)
		case ']':
			w.writeByte(']')
			return i + 1, nil
		default:
			return i, fault("neither , nor ]", i)
		}
	}
}

func (w *Writer) object(i, depth int, t prefixMatch) (int, error) {
	w.writeByte('{')
	i = w.skipSpace(i + 1)
	if w.peek(i) == '}' {
		w.writeByte('}')
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
		i = w.skipSpace(i)
		switch w.peek(i) {
		case ',':
			w.writeByte(',')
			i = w.skipSpace(i + 1)
		case '}':
			if !sorted {
				if err = w.reorder(w.members[first:]); err != nil {
					return i, err
				}
			}
			w.members = w.members[:first]
			w.writeByte('}')
			return i + 1, nil
		default:
			return i, fault("neither , nor }", i)
		}
	}
}
