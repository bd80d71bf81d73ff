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

// Mistake says that the setting at is wrong. Its line is that of the first of the
// settings in places, or of at if there are none, that the file gives. If it gives
// none of them, it is the line of the section around at.
func (f *File) Mistake(at, text string, places ...string) Mistake {
	m := Mistake{File: f.name, At: at, Text: plain.Mask(text)}
	if len(places) == 0 {
		places = []string{at}
	}
	for _, place := range places {
		if m.Line = f.lines[place]; m.Line > 0 {
			return m
		}
	}
	for section := at; section != "" && m.Line == 0; {
		section = section[:max(strings.LastIndexAny(section, ".["), 0)]
		m.Line = f.lines[section]
	}
	return m
}

// Given reports whether the file gives the setting at, rather than leaving it out.
func (f *File) Given(at string) bool { return f.lines[at] > 0 }
