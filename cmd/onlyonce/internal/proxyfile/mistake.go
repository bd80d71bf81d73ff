package proxyfile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/plain"
)

// A Mistake is something wrong in a file.
type Mistake struct {
	File string
	Line int    // 0: nowhere in particular
	At   string // the setting, such as routes[0].keep
	Text string // what is wrong, and what to write instead
}

func (m Mistake) Error() string {
	at := m.File
	if m.Line > 0 {
		at = fmt.Sprintf("%s:%d", m.File, m.Line)
	}
	if m.At == "" {
		return at + ": " + m.Text
	}
	return at + ": " + m.At + ": " + m.Text
}

// Mistakes is everything wrong in a file, in the order of its lines.
type Mistakes []Mistake

func (m Mistakes) Error() string {
	lines := make([]string, len(m))
	for i, one := range m {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// orNil returns m sorted, or nil if there are none.
func (m Mistakes) orNil() error {
	if len(m) == 0 {
		return nil
	}
	slices.SortStableFunc(m, func(a, b Mistake) int { return cmp.Compare(a.Line, b.Line) })
	return m
}

// Mistake says that a setting is wrong. field points to it in the File; if the
// file does not give it, the line is that of the first of within that it gives.
func (f *File) Mistake(field any, at, text string, within ...any) Mistake {
	m := Mistake{File: f.name, At: at, Text: plain.Mask(text), Line: f.lines[field]}
	for _, outer := range within {
		if m.Line == 0 {
			m.Line = f.lines[outer]
		}
	}
	return m
}

// Given reports whether the file gives the setting that field points to, rather
// than leaving it out.
func (f *File) Given(field any) bool { return f.lines[field] > 0 }
