package canonical

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A selection is a JSON Pointer and the value that it selects.
type selection struct {
	pointer  string
	from, to int // of the canonical value in Writer.chosen; equal if nothing was selected
}

// A prefixMatch is the selections [first:end] whose pointers begin with the path to the
// current value. That path is the first done bytes of each of these pointers.
type prefixMatch struct{ first, end, done int }

// setFields parses the pointers. Its error says how to correct an invalid one.
func (w *Writer) setFields(fields []string) error {
	w.selections, w.chosen = w.selections[:0], w.chosen[:0]
	for _, f := range fields {
		if err := checkPointer(f); err != nil {
			return err
		}
		w.selections = append(w.selections, selection{pointer: f})
	}
	slices.SortFunc(w.selections, comparePointers)
	w.selections = slices.CompactFunc(w.selections, func(a, b selection) bool { return a.pointer == b.pointer })
	return nil
}

func checkPointer(pointer string) error {
	if pointer != "" && pointer[0] != '/' {
		return fmt.Errorf("onlyonce: JSON Pointer %q: write %q", pointer, "/"+strings.TrimPrefix(pointer, "#/"))
	}
	for i := range len(pointer) {
		if pointer[i] == '~' && !strings.HasPrefix(pointer[i+1:], "0") && !strings.HasPrefix(pointer[i+1:], "1") {
			return fmt.Errorf("onlyonce: JSON Pointer %q: write ~0 for ~ and ~1 for / in a name", pointer)
		}
	}
	if !utf8.ValidString(pointer) {
		return fmt.Errorf("onlyonce: JSON Pointer %q: write it in UTF-8", pointer)
	}
	return nil
}

// comparePointers compares token by token, so that all pointers that lead
// through one value are together.
func comparePointers(a, b selection) int {
	for i := range min(len(a.pointer), len(b.pointer)) {
		switch x, y := a.pointer[i], b.pointer[i]; {
		case x == y:
		case x == '/':
			return -1
		case y == '/':
			return 1
		default:
			return cmp.Compare(x, y)
		}
	}
	return cmp.Compare(len(a.pointer), len(b.pointer))
}

// follow extends the match by a name in sortable form.
func (w *Writer) follow(t prefixMatch, name []byte) prefixMatch {
	for i := t.first; i < t.end; i++ {
		done, ok := matchToken(w.selections[i].pointer, t.done, name)
		if !ok {
			continue
		}
		way, first := w.selections[i].pointer[:done], i
		for i < t.end && hasPrefixTokens(w.selections[i].pointer, way) {
			i++
		}
		return prefixMatch{first, i, done}
	}
	return prefixMatch{}
}

// followIndex extends the match by the index n.
func (w *Writer) followIndex(t prefixMatch, n int) prefixMatch {
	var digits [20]byte
	return w.follow(t, strconv.AppendInt(digits[:0], int64(n), 10))
}

// hasPrefixTokens reports whether the first tokens of pointer are those of prefix.
func hasPrefixTokens(pointer, prefix string) bool {
	rest, ok := strings.CutPrefix(pointer, prefix)
	return ok && (rest == "" || rest[0] == '/')
}

// matchToken returns where the token at i ends in pointer, and whether it matches the name.
func matchToken(pointer string, i int, name []byte) (end int, ok bool) {
	if i == len(pointer) {
		return i, false
	}
	for i++; i < len(pointer) && pointer[i] != '/'; i++ {
		b := pointer[i]
		if b == '~' {
			i++
			b = "~/"[pointer[i]-'0']
		}
		if len(name) == 0 || name[0] != sortable(b) {
			return i, false
		}
		name = name[1:]
	}
	return i, len(name) == 0
}

// Selected returns tag, and then each field in a fixed order, followed by the
// canonical form of the value that it selects in the document, or by nothing. It is valid
// until the next call.
func (w *Writer) Selected(tag []byte) [][]byte {
	w.parts = append(w.parts[:0], tag)
	for _, at := range w.selections {
		from := len(w.chosen)
		w.chosen = append(w.chosen, at.pointer...)
		w.parts = append(w.parts, w.chosen[from:], w.chosen[at.from:at.to])
	}
	return w.parts
}
