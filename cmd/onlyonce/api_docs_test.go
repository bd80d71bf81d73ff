package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
	"github.com/onlyonce-go/onlyonce/internal/needs"
)

// An example is a command of a document, with its output.
type example struct{ command, output string }

// examples returns those of a document: in a block of console, a command follows
// a $, and goes on after a line that ends with a backslash.
func examples(text string) (found []example) {
	for _, block := range strings.Split(text, "```console\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		var e *example
		for line := range strings.Lines(block) {
			switch {
			case strings.HasPrefix(line, "$ "):
				found = append(found, example{command: line[2:]})
				e = &found[len(found)-1]
			case strings.HasSuffix(e.command, "\\\n"):
				e.command += line
			default:
				e.output += line
			}
		}
	}
	return found
}

var (
	idForm   = regexp.MustCompile(`\b(?:sandbox|ws|req|ord|shp)[-_][0-9A-HJKMNP-TV-Z]{26}\b`)
	timeForm = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z|\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT`)
	pageForm = regexp.MustCompile(`"next_cursor":"[\w-]{20,}"`)
	dropped  = regexp.MustCompile(`(?m)^(?:Date|Content-Length): .*\n`)
)

// stable is the output of a command without the parts that differ each time.
func stable(output string) string {
	output = dropped.ReplaceAllString(strings.ReplaceAll(output, "\r", ""), "")
	output = timeForm.ReplaceAllString(output, "TIME")
	return strings.TrimSpace(pageForm.ReplaceAllString(output, `"next_cursor":"…"`))
}

// A reader follows a document on a server.
type reader struct {
	*served
	ids    map[string]string // from those of the document to those of this run
	taken  map[string]bool   // the latter
	bodies []string
}

// follow runs an example, which must print what the document says. What only reads
// is repeated until it does: a shipment takes a moment.
func (r *reader) follow(e example) {
	r.t.Helper()
	command := idForm.ReplaceAllStringFunc(strings.ReplaceAll(e.command, "http://127.0.0.1:8080", r.url), func(id string) string {
		if mine, ok := r.ids[id]; ok {
			return mine
		}
		return id
	})
	reads := !strings.Contains(command, "-d '") && !strings.Contains(command, "-X ")
	var problem, output string
	cmdtest.Until(r.t, "the example prints what the document says: "+command, func() bool {
		printed, err := exec.Command("sh", "-c", command).Output()
		if err != nil {
			r.t.Fatalf("%s: %v", command, err)
		}
		output = string(printed)
		problem = r.compare(stable(output), stable(e.output))
		return problem == "" || !reads
	})
	if problem != "" {
		r.t.Errorf("%s\n%s", e.command, problem)
	}
	r.checkReplay(output)
}

// compare says how an output differs from the document's; what it has in the place
// of an id of the document is the same everywhere.
func (r *reader) compare(got, want string) string {
	if idForm.ReplaceAllString(got, "ID") != idForm.ReplaceAllString(want, "ID") {
		return fmt.Sprintf("prints\n%s\nnot\n%s", got, want)
	}
	here := idForm.FindAllString(got, -1)
	for i, id := range idForm.FindAllString(want, -1) {
		known, ok := r.ids[id]
		switch {
		case ok && known != here[i], !ok && r.taken[here[i]]:
			return fmt.Sprintf("has %s for %s, which is another", here[i], id)
		case !ok:
			r.ids[id], r.taken[here[i]] = here[i], true
		}
	}
	return ""
}

// checkReplay checks that a replay is an earlier response, byte for byte.
func (r *reader) checkReplay(output string) {
	r.t.Helper()
	header, body, _ := strings.Cut(output, "\r\n\r\n")
	if !strings.Contains(header, "Idempotency-Replayed: true") {
		r.bodies = append(r.bodies, body)
		return
	}
	for _, earlier := range r.bodies {
		if earlier == body {
			return
		}
	}
	r.t.Errorf("this is a replay of nothing: %s", output)
}

func TestAPIDocs_TheExamplesOfTheAPIsDoWhatTheirDocumentsSay(t *testing.T) {
	needs.Program(t, "curl")
	for api, least := range map[string]int{"items": 11, "sandboxes": 15, "orders": 12} {
		t.Run(api, func(t *testing.T) {
			t.Parallel()
			found := examples(document(t, api))
			if len(found) < least {
				t.Errorf("%d examples, want at least %d", len(found), least)
			}
			r := &reader{served: startServe(t, t.TempDir()), ids: make(map[string]string), taken: make(map[string]bool)}
			for _, e := range found {
				r.follow(e)
			}
		})
	}
}

// document returns the text of an API's document.
func document(t *testing.T, api string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/api/" + api + ".md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestAPIDocs_TheDocumentsOfTheAPIsShowTheirSchema(t *testing.T) {
	for api, migrations := range map[string]string{
		"items":     "../../services/items/migrations/*.sql",
		"sandboxes": "../../services/sandboxes/migrations/*.sql",
		"orders":    "../../services/orders/migrations/sqlite/*.sql",
	} {
		files, err := filepath.Glob(migrations)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", migrations, files, err)
		}
		for _, file := range files {
			schema, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			tables := strings.TrimSpace(strings.TrimPrefix(string(schema), "-- +goose Up\n"))
			if !strings.Contains(document(t, api), "```sql\n"+tables+"\n```") {
				t.Errorf("docs/api/%s.md does not show %s as it is", api, file)
			}
		}
	}
}

func TestAPIDocs_TheDocumentsOfTheAPIsNameEveryErrorCode(t *testing.T) {
	codes := regexp.MustCompile(`(?:Code: +|code[A-Z]\w+ += |newProblem\(http\.Status\w+, )"(\w+)"`)
	for api, source := range map[string]string{
		"items": "items/problem.go", "sandboxes": "sandboxes/problem.go", "orders": "orders/problem.go",
	} {
		text, err := os.ReadFile("../../services/" + source)
		if err != nil {
			t.Fatal(err)
		}
		found := codes.FindAllStringSubmatch(string(text), -1)
		if len(found) < 8 {
			t.Errorf("%s has %d codes", source, len(found))
		}
		for _, code := range found {
			if !strings.Contains(document(t, api), "`"+code[1]+"`") {
				t.Errorf("docs/api/%s.md does not name %s", api, code[1])
			}
		}
	}
}
