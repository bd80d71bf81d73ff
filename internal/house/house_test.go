// Package house holds the repository to its own rules: which package may import which, that
// the design names every internal package, that the adapters to fiber do not drift apart, that
// the documents name tests that exist, that those of attacks are in the table of attacks, that
// every problem has its section and every cell of the comparison its source, and that the guide
// to the stores has their findings. It is in the root module because Go runs a test again only for
// files that change within the test's own module.
package house

import (
	"os"
	"os/exec"
	"path/filepath"
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
	shared := []string{"internal/breakoff", "internal/bridge", "internal/callstack", "internal/contentcoding", "internal/defaults", "internal/envelope", "internal/funcsource", "internal/httpfield", "internal/interim", "internal/recovered", "internal/rejectedtx", "internal/resend", "internal/secretname", "internal/shares", "internal/statuses", "internal/tokenfile", "internal/visible"}
	application := func(path string) bool {
		return under(path, "services") || under(path, "cmd") || under(path, "docs/examples") || under(path, "internal") && path != canonical && !slices.Contains(shared, path)
	}
	commands := []string{"bench", "check", "docscmd", "doctor", "migrate", "outboxcmd", "poison", "proxycmd", "records", "relay", "serve"} // of cmd/onlyonce/internal
	ofFrameworks := []string{"adapters/connectonce", "adapters/echo5once", "adapters/echoonce", "adapters/fiber2once", "adapters/fiberonce", "adapters/ginonce", "adapters/grpconce", "adapters/lambdaonce", "adapters/mcponce"}
	ofMessages := []string{"adapters/jetstreamonce", "adapters/kafkaonce", "adapters/lambdaonce", "adapters/watermillonce"}
	ofProxy := []string{"bearer", "proxyfile", "regular", "rejection"}
	named := slices.Concat(integrations, shared, ofFrameworks, ofMessages, []string{"internal/storeurl"})
	for _, name := range slices.Concat(commands, ofProxy) {
		named = append(named, "cmd/onlyonce/internal/"+name)
	}
	for _, path := range named {
		if _, ok := ours[path]; !ok {
			t.Errorf("there is no package %s, which a rule is about", path)
		}
	}
	vendor := func(path string) bool { // modules of their own
		return under(path, "stores/cryptstore") || under(path, "stores/dynamostore") || under(path, "stores/etcdstore") || under(path, "stores/natsstore") || under(path, "stores/pgxstore") || under(path, "stores/redisstore") || under(path, "adapters")
	}
	// The packages under stores/internal, and which of them each may import.
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
			case to == canonical && from == "adapters/lambdaonce":
			case from == "console" && to == "outbox":
			case integration(from) && to != "." && (from != "proxy" || to != "httponce" && !under(to, "proxy/internal")):
				broken = "an integration imports the root only"
			case to == storesInternal+"sqltest" || to == storesInternal+"storebench" || to == storesInternal+"hazard":
				broken = "only tests import what tests share"
			case under(from, "stores/internal") && to != "." && !slices.Contains(storeParts[strings.TrimPrefix(from, storesInternal)], strings.TrimPrefix(to, storesInternal)):
				broken = "a part of the stores imports the root and the parts below it only"
			case under(from, "stores") && to != "." && to != "outbox" && !under(to, "stores/internal") && !under(to, from):
				broken = "a store imports the root and outbox only, and what stores share"
			case slices.Contains(ofFrameworks, from) && to == "httponce":
			case under(to, "internal/storeurl") && !under(from, "cmd") && !under(from, "internal/storeurl"):
				broken = "only cmd and caddyonce open stores by their URLs"
			case slices.ContainsFunc(ofMessages, func(path string) bool { return under(from, path) }) && to == "inbox":
			case strings.HasPrefix(from, "adapters/") && strings.HasSuffix(from, "/example") && (to == "httponce" || to == "stores/memstore" || under(to, strings.TrimSuffix(strings.TrimSuffix(from, "/example"), "/kfaketest"))):
			case under(from, "adapters") && to != "." && to != "outbox" && !under(to, from):
				broken = "an adapter imports the root and outbox only, that of a framework also httponce, and those of messages the inbox"
			case under(to, "cmd") && !under(from, "cmd"):
				broken = "nobody imports cmd"
			case slices.Contains(commands, strings.TrimPrefix(to, "cmd/onlyonce/internal/")) && from != "cmd/onlyonce":
				broken = "only the program imports a command"
			case slices.Contains(ofProxy, strings.TrimPrefix(to, "cmd/onlyonce/internal/")) && from != "cmd/onlyonce/internal/proxycmd" && !slices.Contains(ofProxy, strings.TrimPrefix(from, "cmd/onlyonce/internal/")):
				broken = "only the proxy needs it"
			case to == "cmd/onlyonce/internal/cmdtest":
				broken = "only tests import what tests share"
			case to == "docs" && !under(from, "cmd"):
				broken = "only cmd shows the documentation"
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

func TestHouse_TheAdaptersToFiberDifferOnlyInFibersNames(t *testing.T) {
	read := func(file string) string {
		text, err := os.ReadFile(repository(t) + "/adapters/" + file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	names := strings.NewReplacer("fiberonce", "fiber2once", "fiber/v3", "fiber/v2", "fiber.Ctx", "*fiber.Ctx",
		"c.Context()", "c.UserContext()", "c.SetContext(", "c.SetUserContext(", "c.RequestCtx()", "c.Context()")
	for _, file := range []string{"entry.go", "middleware.go", "nethttp.go"} {
		if names.Replace(read("fiberonce/"+file)) != read("fiber2once/"+file) {
			t.Errorf("adapters/fiberonce/%s and adapters/fiber2once/%s differ in more than the names: change both", file, file)
		}
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
