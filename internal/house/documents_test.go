package house

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// codeSpan matches a code span of Markdown, testName the name of a test or a
// fuzz target.
var (
	codeSpan = regexp.MustCompile("`([^`\n]+)`")
	testName = regexp.MustCompile(`^(Test|Fuzz)[A-Z0-9]\w*$`)
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Z0-9]\w*)\(`)
)

// testsOf returns the names of the tests and fuzz targets in a repository, by folder.
func testsOf(t *testing.T, root string) map[string]map[string]bool {
	t.Helper()
	tests := map[string]map[string]bool{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && strings.HasPrefix(entry.Name(), "."):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		folder = filepath.ToSlash(folder)
		if tests[folder] == nil {
			tests[folder] = map[string]bool{}
		}
		for _, match := range testFunc.FindAllStringSubmatch(string(source), -1) {
			tests[folder][match[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests
}

// testsNamed returns the tests that a document names: their folder, which is empty if the
// document does not say it, and their name.
func testsNamed(t *testing.T, document string) (named [][2]string) {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	for _, span := range codeSpan.FindAllStringSubmatch(string(text), -1) {
		folder, list, found := strings.Cut(span[1], ": ")
		if !found {
			folder, list = "", span[1]
		}
		for _, name := range strings.Split(list, ", ") {
			if testName.MatchString(name) {
				named = append(named, [2]string{folder, name})
			}
		}
	}
	return named
}

func TestHouse_TheTestsThatTheDocumentsNameExist(t *testing.T) {
	root := repository(t)
	tests := testsOf(t, root)
	everywhere := map[string]bool{}
	for _, in := range tests {
		maps.Copy(everywhere, in)
	}
	documents, err := filepath.Glob(root + "/docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, document := range documents {
		for _, test := range testsNamed(t, document) {
			folder, name := test[0], test[1]
			named++
			if folder == "" && !everywhere[name] || folder != "" && !tests[folder][name] {
				t.Errorf("%s names %s: there is no such test in folder %q", filepath.Base(document), name, folder)
			}
		}
	}
	if named < 200 {
		t.Errorf("only %d tests are named in the documents: the pattern no longer fits them", named)
	}
}

func TestHouse_EveryTestOfAnAttackIsInTheTableOfAttacks(t *testing.T) {
	root := repository(t)
	named := testsNamed(t, root+"/docs/security.md")
	for folder, tests := range testsOf(t, root) {
		for name := range tests {
			if strings.HasPrefix(name, "TestSecurity_") && !slices.Contains(named, [2]string{folder, name}) {
				t.Errorf("docs/security.md does not name %s: %s", folder, name)
			}
		}
	}
}

// testNumber matches the number of a test in docs/stores.md.
var testNumber = regexp.MustCompile(`\[(\d+)\]`)

func TestHouse_EveryClaimAboutAStoreNamesItsTest(t *testing.T) {
	text, err := os.ReadFile(repository(t) + "/docs/stores.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n## What a command survives\n")
	tables, list, found := strings.Cut(rest, "\n### The tests of these tables\n")
	list, _, ended := strings.Cut(list, "\n## ")
	if !found || !ended {
		t.Fatal("docs/stores.md lacks its tables of faults, or the list of their tests")
	}
	tests := map[string]bool{} // by their numbers; true: it is used
	for line := range strings.Lines(list) {
		if number := testNumber.FindStringSubmatch(line); number != nil {
			if !strings.Contains(line, "Test") {
				t.Errorf("number %s names no test", number[1])
			}
			tests[number[1]] = false
		}
	}
	for _, number := range testNumber.FindAllStringSubmatch(tables, -1) {
		if _, listed := tests[number[1]]; !listed {
			t.Errorf("no test has the number %s", number[1])
		}
		tests[number[1]] = true
	}
	for number, used := range tests {
		if !used {
			t.Errorf("nothing refers to test %s", number)
		}
	}
	survival, _, _ := strings.Cut(tables, "\n## ")
	cells := 0
	for line := range strings.Lines(survival) {
		row := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(row) < 2 || strings.Contains(row[0], "---") || strings.TrimSpace(row[0]) == "store" {
			continue
		}
		for _, cell := range row[1:] {
			cells++
			if !testNumber.MatchString(cell) && !strings.Contains(cell, "not tested") && !strings.Contains(cell, "there is no") {
				t.Errorf("%s: %q names neither a test nor that there is none", strings.TrimSpace(row[0]), strings.TrimSpace(cell))
			}
		}
	}
	if cells < 60 {
		t.Errorf("only %d cells were found in the table of faults", cells)
	}
}

// The findings of stores: the constants with their names, and the list of those that can be accepted.
var (
	findingName  = regexp.MustCompile(`(?m)^\s+([Rr]isk\w+)\s*= "([a-z-]+)"`)
	findingsUsed = regexp.MustCompile(`engine\.(Risk\w+)`)
	acceptable   = regexp.MustCompile(`(?s)\nvar risks = \[\]string\{(.*?)\}`)
)

func TestHouse_EveryFindingOfAStoreIsInTheGuide(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(repository(t) + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	_, guide, _ := strings.Cut(read("docs/stores.md"), "\n## Settings that a store rejects\n")
	guide, _, _ = strings.Cut(guide, "\n## ")
	shared := map[string]string{}
	for _, match := range findingName.FindAllStringSubmatch(read("stores/internal/engine/finding.go"), -1) {
		shared[match[1]] = match[2]
	}
	rows := 0
	for store, folder := range map[string]string{
		"SQLite": "internal/sqlite", "PostgreSQL": "internal/postgres", "MySQL, MariaDB": "internal/mysql",
		"Redis, Valkey": "redisstore", "NATS JetStream": "natsstore", "etcd": "etcdstore", "DynamoDB": "dynamostore",
	} {
		source := read("stores/" + folder + "/diagnose.go")
		list := acceptable.FindStringSubmatch(source)
		if list == nil {
			t.Fatalf("%s lists no risks that can be accepted", folder)
		}
		accepted := strings.Split(strings.ReplaceAll(list[1], "engine.", ""), ", ")
		names := map[string]string{}
		for _, match := range findingName.FindAllStringSubmatch(source, -1) {
			names[match[1]] = match[2]
		}
		for _, match := range findingsUsed.FindAllStringSubmatch(source, -1) {
			names[match[1]] = shared[match[1]]
		}
		for constant, name := range names {
			rows++
			row := regexp.MustCompile(`(?m)^\| ` + store + " \\| `" + name + "` \\| .* \\| (.*) \\|$").FindStringSubmatch(guide)
			if row == nil {
				t.Errorf("docs/stores.md has no row for the finding %s of %s", name, store)
			} else if (row[1] != "no") != slices.Contains(accepted, constant) {
				t.Errorf("docs/stores.md says of the finding %s of %s that it can be accepted: %s", name, store, row[1])
			}
		}
	}
	if got := strings.Count(guide, "\n| ") - 1; got != rows {
		t.Errorf("docs/stores.md has %d rows of findings, and the stores have %d", got, rows)
	}
}
