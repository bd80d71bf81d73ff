package proxyfile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/plain"
)

// A Mistake is a setting or a line of a file that is wrong.
type Mistake struct {
	File string
	Line int    // 0: no particular line
	At   string // the setting, such as routes[0].keep
	Text string // the mistake, and how to fix it
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

// Mistakes lists the mistakes in a file, in the order of its lines.
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

// Mistake returns a mistake in the setting with the path at. Its line is that of the first
// setting in the file among those in places, or that of at if there are no places. If the
// file has none of them, it is the line of the section around at.
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

// Given reports whether the file contains the setting with the path at.
func (f *File) Given(at string) bool { return f.lines[at] > 0 }
