package canonical

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A choice is a JSON Pointer, and what it selects.
type choice struct {
	pointer  string
	from, to int // where in chosen is the canonical value; the same: nothing was selected
}

// A trail leads to a value that is what choices[first:end] select, or on the
// way there: the first done bytes of their pointers, which are the same.
type trail struct{ first, end, done int }

// setFields makes choices of the pointers, or says what to write instead.
func (w *Writer) setFields(fields []string) error {
	w.choices, w.chosen = w.choices[:0], w.chosen[:0]
	for _, f := range fields {
		if err := checkPointer(f); err != nil {
			return err
		}
		w.choices = append(w.choices, choice{pointer: f})
	}
	slices.SortFunc(w.choices, comparePointers)
	w.choices = slices.CompactFunc(w.choices, func(a, b choice) bool { return a.pointer == b.pointer })
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
func comparePointers(a, b choice) int {
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

// follow returns the trail on to what has that name, as names sort.
func (w *Writer) follow(t trail, name []byte) trail {
	for i := t.first; i < t.end; i++ {
		done, ok := matchToken(w.choices[i].pointer, t.done, name)
		if !ok {
			continue
		}
		way, first := w.choices[i].pointer[:done], i
		for i < t.end && hasPrefixTokens(w.choices[i].pointer, way) {
			i++
		}
		return trail{first, i, done}
	}
	return trail{}
}

// followIndex returns the trail on to the nth element.
func (w *Writer) followIndex(t trail, n int) trail {
	var digits [20]byte
	return w.follow(t, strconv.AppendInt(digits[:0], int64(n), 10))
}

// hasPrefixTokens reports whether the first tokens of pointer are those of prefix.
func hasPrefixTokens(pointer, prefix string) bool {
	rest, ok := strings.CutPrefix(pointer, prefix)
	return ok && (rest == "" || rest[0] == '/')
}

// matchToken returns where in pointer the token at i ends, if it stands for the name.
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
// canonical form of what it selects in the document, or by nothing. It is good
// until the next call.
func (w *Writer) Selected(tag []byte) [][]byte {
	w.parts = append(w.parts[:0], tag)
	for _, at := range w.choices {
		from := len(w.chosen)
		w.chosen = append(w.chosen, at.pointer...)
		w.parts = append(w.parts, w.chosen[from:], w.chosen[at.from:at.to])
	}
	return w.parts
}
