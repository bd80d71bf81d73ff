// Package house holds the repository to its own rules: which package may import which, that
// the design names every internal package, that the documents name tests that exist, that
// those of attacks are in the table of attacks, and that the guide to the stores has their
// findings. It is in the root module because Go runs a test again only for files that change
// within the test's own module.
package house

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/onlyonce-go/onlyonce"

// imports returns, for every package of the workspace that is not a test, the
// packages of the workspace that it imports, and whether it imports others
// that are not of the standard library.
func imports(t *testing.T) (ours, foreign map[string][]string) {
	t.Helper()
	ours, foreign = map[string][]string{}, map[string][]string{}
	for line := range strings.Lines(run(t, repository(t), "go", "list", "-f", `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`, "work")) {
		fields := strings.Fields(line)
		from := within(fields[0])
		ours[from] = nil
		for _, to := range fields[1:] {
			switch {
			case to == module || strings.HasPrefix(to, module+"/"):
				ours[from] = append(ours[from], within(to))
			case strings.Contains(strings.SplitN(to, "/", 2)[0], "."):
				foreign[from] = append(foreign[from], to)
			}
		}
	}
	return ours, foreign
}

// within is a package's path in the repository; the root package's is ".".
func within(path string) string {
	if path == module {
		return "."
	}
	return strings.TrimPrefix(path, module+"/")
}

// repository is the folder of the repository. If only the root module is there, the test is
// skipped.
func repository(t *testing.T) string {
	t.Helper()
	const root = "../.."
	if _, err := os.Stat(root + "/go.work"); err != nil {
		t.Skip("needs a checkout of the whole repository: ", err)
	}
	return root
}

func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := err.(*exec.ExitError); ok { // Output returns it as it is
			t.Fatalf("%s %v: %v\n%s", name, args, err, exit.Stderr)
		}
		t.Fatalf("%s %v: %v", name, args, err)
	}
	return string(out)
}

func TestHouse_WhoMayImportWhom(t *testing.T) {
	ours, foreign := imports(t)
	if len(ours) < 6 {
		t.Fatalf("only %d packages found", len(ours))
	}
	under := func(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }
	integrations := []string{"httponce", "inbox", "conform", "proxy", "console"}
	integration := func(path string) bool {
		return slices.ContainsFunc(integrations, func(dir string) bool { return under(path, dir) })
	}
	const canonical = "internal/canonical" // a part of the root in a room of its own
	// Every package may import these, and they import nothing of ours.
	shared := []string{"internal/contentcoding", "internal/defaults", "internal/envelope", "internal/rejectedtx", "internal/secretname", "internal/shares", "internal/visible"}
	application := func(path string) bool {
		return under(path, "services") || under(path, "cmd") || under(path, "docs/examples") || under(path, "internal") && path != canonical && !slices.Contains(shared, path)
	}
	commands := []string{"bench", "check", "doctor", "migrate", "outboxcmd", "poison", "proxycmd", "records", "relay", "serve"} // of cmd/onlyonce/internal
	ofProxy := []string{"bearer", "proxyfile", "regular", "rejection"}
	named := slices.Concat(integrations, shared)
	for _, name := range slices.Concat(commands, ofProxy) {
		named = append(named, "cmd/onlyonce/internal/"+name)
	}
	for _, path := range named {
		if _, ok := ours[path]; !ok {
			t.Errorf("there is no package %s, which a rule is about", path)
		}
	}
	vendor := func(path string) bool { // modules of their own
		return under(path, "stores/cryptstore") || under(path, "stores/dynamostore") || under(path, "stores/etcdstore") || under(path, "stores/natsstore") || under(path, "stores/pgxstore") || under(path, "stores/redisstore") || under(path, "adapters") || path == "watermillonce"
	}
	// The packages under stores/internal, and what each may import of them.
	storeParts := map[string][]string{
		"record":     nil,
		"group":      nil,
		"waiters":    nil,
		"serverurl":  nil,
		"value":      {"record"},
		"optimistic": {"record"},
		"coalesce":   nil,
		"flush":      {"coalesce", "record"},
		"transact":   {"record"},
		"engine":     {"group", "record"},
		"messages":   {"engine", "record", "outbox"},
		"server":     {"engine", "group", "optimistic", "record", "transact"},
		"sqlite":     {"engine", "group", "record", "transact"},
		"mysql":      {"engine", "flush", "record", "server", "transact"},
		"postgres":   {"engine", "flush", "record", "server", "transact"},
		"sqltest":    {"engine", "server"}, // for tests
		"storebench": nil,                  // for tests
		"hazard":     nil,                  // for tests
	}
	const storesInternal = "stores/internal/"
	for from, targets := range ours {
		if part, ok := strings.CutPrefix(from, storesInternal); ok {
			if _, known := storeParts[part]; !known {
				t.Errorf("%s is not listed here with what it may import", from)
			}
		}
		if !application(from) && !vendor(from) && len(foreign[from]) > 0 {
			t.Errorf("%s imports %v: the library has no dependencies", from, foreign[from])
		}
		for _, to := range targets {
			var broken string
			switch {
			case slices.Contains(shared, to) && from != canonical:
			case slices.Contains(shared, from) || from == canonical || from == "proxy/internal/syntax" || from == "outbox" || from == "." && to != canonical:
				broken = "imports nothing of ours"
			case under(from, "proxy/internal"):
				if to != "proxy/internal/syntax" && (from != "proxy/internal/slots" || to != "proxy/internal/inbound") {
					broken = "a part of the proxy imports nothing of ours but the syntax"
				}
			case under(from, "httponce/internal"):
				if from != "httponce/internal/response" || to != "httponce/internal/resources" {
					broken = "a part of httponce imports nothing of ours but the resources"
				}
			case (under(to, "httponce/internal") || to == canonical) && from == "httponce":
			case from == "console" && to == "outbox":
			case integration(from) && to != "." && (from != "proxy" || to != "httponce" && !under(to, "proxy/internal")):
				broken = "an integration imports the root only"
			case to == storesInternal+"sqltest" || to == storesInternal+"storebench" || to == storesInternal+"hazard":
				broken = "only tests import what tests share"
			case under(from, "stores/internal") && to != "." && !slices.Contains(storeParts[strings.TrimPrefix(from, storesInternal)], strings.TrimPrefix(to, storesInternal)):
				broken = "a part of the stores imports the root and the parts below it only"
			case under(from, "stores") && to != "." && to != "outbox" && !under(to, "stores/internal") && !under(to, from):
				broken = "a store imports the root and outbox only, and what stores share"
			case under(from, "adapters") && to != "." && to != "outbox" && !under(to, from):
				broken = "an adapter imports the root and outbox only"
			case from == "watermillonce" && to != "." && to != "outbox" && to != "inbox":
				broken = "an adapter imports the root, outbox and inbox only"
			case under(to, "cmd") && !under(from, "cmd"):
				broken = "nobody imports cmd"
			case slices.Contains(commands, strings.TrimPrefix(to, "cmd/onlyonce/internal/")) && from != "cmd/onlyonce":
				broken = "only the program imports a command"
			case slices.Contains(ofProxy, strings.TrimPrefix(to, "cmd/onlyonce/internal/")) && from != "cmd/onlyonce/internal/proxycmd" && !slices.Contains(ofProxy, strings.TrimPrefix(from, "cmd/onlyonce/internal/")):
				broken = "only the proxy needs it"
			case to == "cmd/onlyonce/internal/cmdtest":
				broken = "only tests import what tests share"
			case under(to, "services") && !under(from, "cmd") && !under(from, "services"):
				broken = "only cmd imports the services"
			}
			if broken != "" {
				t.Errorf("%s imports %s: %s", from, to, broken)
			}
		}
	}
	if deps := run(t, repository(t), "go", "list", "-deps", "-f", "{{.ImportPath}}", module); strings.Contains("\n"+deps, "\nnet/http\n") {
		t.Error("the root package depends on net/http")
	}
}

func TestHouse_TheDesignNamesEveryInternalPackage(t *testing.T) {
	text, err := os.ReadFile(repository(t) + "/docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rules, _ := strings.Cut(string(text), "\n## 3. ")
	rules, _, ended := strings.Cut(rules, "\n## 4. ")
	if !ended {
		t.Fatal("docs/design.md lacks its sections 3 and 4")
	}
	ours, _ := imports(t)
	if len(ours) < 6 {
		t.Fatalf("only %d packages found", len(ours))
	}
	for path := range ours {
		above, name, internal := cutLast(path, "internal/")
		if name, _, _ = strings.Cut(name, "/"); !internal || strings.Contains(rules, "`"+name+"`") || strings.Contains(rules, "`"+above+"internal/"+name+"`") {
			continue
		}
		t.Errorf("docs/design.md, section 3, does not name %sinternal/%s", above, name)
	}
}

// cutLast is strings.Cut at the last separator.
func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

func TestHouse_AUserOfTheCoreGetsNoOtherModule(t *testing.T) {
	root, err := filepath.Abs(repository(t))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module user\n\ngo 1.26\n\nrequire "+module+" v0.0.0\n\nreplace "+module+" => "+root+"\n")
	write("main.go", `package main

import (
	_ "`+module+`"
	_ "`+module+`/httponce"
	_ "`+module+`/stores/sqlstore"
)

func main() {}
`)
	t.Setenv("GOWORK", "off")
	run(t, dir, "go", "build", "./...")
	lines := strings.Split(strings.TrimSpace(run(t, dir, "go", "list", "-m", "all")), "\n")
	if len(lines) != 2 {
		t.Errorf("modules besides the user's own, want one:\n%s", strings.Join(lines, "\n"))
	}
}

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
