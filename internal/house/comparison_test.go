package house

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestHouse_EveryCellOfTheComparisonNamesItsSource(t *testing.T) {
	text, err := os.ReadFile(repository(t) + "/docs/comparison.md")
	if err != nil {
		t.Fatal(err)
	}
	tables, list, found := strings.Cut(string(text), "\n## Sources\n")
	if !found {
		t.Fatal("docs/comparison.md lacks its sources")
	}
	sources := map[string]bool{} // by their names; true: it is used
	for _, row := range regexp.MustCompile(`(?m)^\| ([A-Z]\d) \| \[.+\]\(https://.+\) \|$`).FindAllStringSubmatch(list, -1) {
		sources[row[1]] = false
	}
	reference := regexp.MustCompile(`\[([A-Z]\d)\]`)
	cells := 0
	for line := range strings.Lines(tables) {
		row := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "| |") || strings.HasPrefix(line, "|---") || strings.HasPrefix(line, "| Onlyonce |") {
			continue
		}
		for _, cell := range row[1:] {
			cells++
			named := reference.FindAllStringSubmatch(cell, -1)
			if len(named) == 0 {
				t.Errorf("%s: %q names no source", strings.TrimSpace(row[0]), strings.TrimSpace(cell))
			}
			for _, name := range named {
				if _, listed := sources[name[1]]; !listed {
					t.Errorf("%s: there is no source %s", strings.TrimSpace(row[0]), name[1])
				}
				sources[name[1]] = true
			}
		}
	}
	if cells < 70 {
		t.Errorf("only %d cells were found", cells)
	}
	for name, used := range sources {
		if !used {
			t.Errorf("nothing refers to source %s", name)
		}
	}
}
