package proxyfile

import (
	"strings"
	"testing"
)

// A file is either understood, and then printed as one that means the same, or
// every mistake in it is named.
func FuzzAFileIsUnderstoodOrItsMistakesAreNamed(f *testing.F) {
	f.Add(least)
	f.Add(everything)
	f.Add(Print(New()))
	for text := range mistaken {
		f.Add(strings.TrimPrefix(text, "!"))
		f.Add(least + text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		file, err := Parse("p.yaml", []byte(text))
		if err != nil {
			all := mistakes(err)
			if len(all) == 0 {
				t.Fatalf("%v of %q names no mistake", err, text)
			}
			lines := 1
			for _, end := range []string{"\n", "\r", "\u0085", "\u2028", "\u2029"} { // YAML's
				lines += strings.Count(text, end)
			}
			for _, m := range all {
				if m.Text == "" || m.Line < 0 || m.Line > lines+1 {
					t.Errorf("%v of %q, which has %d lines", m, text, lines)
				}
			}
			return
		}
		printed := Print(file)
		again, err := Parse("printed", []byte(printed))
		if err != nil {
			t.Fatalf("%v of what is printed of %q:\n%s", err, text, printed)
		}
		if !same(file, again) {
			t.Errorf("%q is printed as\n%s", text, printed)
		}
	})
}
