package guide_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/internal/guide"
)

// A recorder is a test that must fail.
type recorder struct {
	testing.TB
	errors []string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

const text = "# A guide\n\n```go\nfunc a() {\n}\n```\n\nText.\n\n```go\nfunc b() {}\n```\n```\n$ run it\n```\n\n```sh\nsend\n```\n"

func TestCheck_ComparesTheBlocksOfEachLanguage(t *testing.T) {
	for name, c := range map[string]struct {
		a, b, sh string // the files
		wrong    []string
	}{
		"all there":                  {"package x\n\nfunc a() {\n}\n", "package x\n\nfunc b() {}\n", "send\n", nil},
		"one changed":                {"package x\n\nfunc a() {\n\treturn\n}\n", "func b() {}", "send", []string{"func a"}},
		"a part of a line":           {"func a() {\n}", "xfunc b() {}", "sender", []string{"func b", "send"}},
		"in that of another one":     {"func a() {\n}\nsend\n", "func b() {}", "", []string{"send"}},
		"across the end of one file": {"func a() {", "}\nfunc b() {}", "send", []string{"func a"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{"guide.md": text, "a.go": c.a, "b.go": c.b, "c.sh": c.sh} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			r := &recorder{TB: t}
			blocks := guide.Check(r, filepath.Join(dir, "guide.md"), map[string]string{"go": dir + "/*.go", "sh": dir + "/c.sh"})
			if want := map[string]int{"go": 2, "": 1, "sh": 1}; !maps.Equal(blocks, want) {
				t.Errorf("the blocks are %v, want %v", blocks, want)
			}
			slices.Sort(r.errors)
			if len(r.errors) != len(c.wrong) {
				t.Errorf("the errors are %q, want those of %q", r.errors, c.wrong)
			}
			for _, want := range c.wrong {
				if !slices.ContainsFunc(r.errors, func(text string) bool { return strings.Contains(text, ":\n"+want) }) {
					t.Errorf("no error is about %q: %q", want, r.errors)
				}
			}
		})
	}
}
