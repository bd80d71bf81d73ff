// Package guide compares the examples of a guide with code that is tested.
package guide

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Check compares the blocks of code in a guide, which is a file of Markdown, with the files that a
// pattern of filepath.Glob matches, by the language of the blocks. It fails for each block that is
// not a whole number of lines of these files, and returns how many blocks there are of each
// language. Blocks of a language without a pattern are counted only.
func Check(t testing.TB, guide string, files map[string]string) (blocks map[string]int) {
	t.Helper()
	code := make(map[string]string, len(files))
	for language, pattern := range files {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatalf("no file matches %s: %v", pattern, err)
		}
		for _, name := range names {
			code[language] += "\n" + read(t, name) + "\n"
		}
	}
	blocks = make(map[string]int)
	for i, part := range strings.Split("\n"+read(t, guide), "\n```") {
		if i%2 == 0 {
			continue // between two blocks
		}
		language, block, _ := strings.Cut(part, "\n")
		blocks[language]++
		if text, ok := code[language]; ok && !strings.Contains(text, "\n"+block+"\n") {
			t.Errorf("%s: this is not the code of a test:\n%s", guide, block)
		}
	}
	return blocks
}

func read(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
