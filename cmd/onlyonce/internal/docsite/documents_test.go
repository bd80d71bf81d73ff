package docsite

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/yuin/goldmark/ast"
	"go.yaml.in/yaml/v3"
)

// documents returns every Markdown file of the repository, by its path.
func documents(t *testing.T) map[string]*page {
	t.Helper()
	found := map[string]*page{}
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && file != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "node_modules"):
			return filepath.SkipDir
		case path.Ext(file) != ".md":
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		found[name], err = parse(name, text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 30 {
		t.Fatalf("only %d documents were found", len(found))
	}
	return found
}

func TestDocuments_EveryLinkLeadsToAFileAndASectionThatExist(t *testing.T) {
	all := documents(t)
	for name, p := range all {
		p.links(func(destination *[]byte) {
			link := string(*destination)
			u, err := url.Parse(link)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if err != nil || u.IsAbs() {
				return
			}
			to := name
			if u.Path != "" {
				to = path.Join(path.Dir(name), u.Path)
			}
			if _, err := os.Stat(root + to); err != nil {
				t.Errorf("%s: %s: there is no such file", name, link)
			} else if u.Fragment != "" && (all[to] == nil || !all[to].hasSection(u.Fragment)) {
				t.Errorf("%s: %s: there is no such section", name, link)
			}
		})
	}
}

func (p *page) hasSection(id string) bool {
	for _, s := range p.sections {
		if s.id == id {
			return true
		}
	}
	return false
}

// A block is a code block of a document.
type block struct {
	where          string // the document and the number of the first line
	language, code string
}

// codeBlocks returns the code blocks of the documents, except those that are in the documents named.
func codeBlocks(t *testing.T, except ...string) (list []block) {
	t.Helper()
	for name, p := range documents(t) {
		_ = ast.Walk(p.document, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
			if !entering || n.Kind() != ast.KindFencedCodeBlock && n.Kind() != ast.KindCodeBlock || n.Lines().Len() == 0 {
				return ast.WalkContinue, nil
			}
			b := block{code: string(codeOf(n, p.text)), where: fmt.Sprintf("%s:%d", name, 1+bytes.Count(p.text[:n.Lines().At(0).Start], []byte("\n")))}
			if fenced, ok := n.(*ast.FencedCodeBlock); ok {
				b.language = string(fenced.Language(p.text))
			}
			for _, other := range except {
				if name == other {
					return ast.WalkContinue, nil
				}
			}
			list = append(list, b)
			return ast.WalkContinue, nil
		})
	}
	return list
}

// Other tests run the code of pages that have languages without a parser here.
func TestDocuments_EveryCodeBlockHasAKnownLanguageAndCanBeParsed(t *testing.T) {
	bash, python := needs.Program(t, "bash"), needs.Program(t, "python3")
	parsers := map[string]func(code string) error{
		"console": func(code string) error { return run(bash, commandsOf(code), "-n") },
		"http":    parseMessage,
		"json":    parseJSON,
		"python": func(code string) error {
			return run(python, code, "-c", "import ast, sys; ast.parse(sys.stdin.read())")
		},
		"sh":   func(code string) error { return run(bash, code, "-n") },
		"yaml": func(code string) error { return yaml.Unmarshal([]byte(code), new(any)) },
	}
	parsed := 0
	for _, b := range codeBlocks(t) {
		if _, known := syntax[b.language]; !known {
			t.Errorf("%s: the code block has the unknown language %q: write one of those in highlight.go after ```, such as sh for commands, and text for output", b.where, b.language)
		}
		if parse := parsers[b.language]; parse != nil {
			parsed++
			if err := parse(b.code); err != nil {
				t.Errorf("%s: %v", b.where, err)
			}
		}
	}
	if parsed < 100 {
		t.Errorf("only %d code blocks were parsed", parsed)
	}
}

// run runs a program, whose output is its error.
func run(program, input string, args ...string) error {
	cmd := exec.Command(program, args...)
	cmd.Stdin = strings.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// commandOf matches a command after a prompt, with its further lines.
var commandOf = regexp.MustCompile(`(?m)^\$ ((?:.*\\\n)*.*)$`)

// commandsOf returns the commands of a session, without their output.
func commandsOf(session string) string {
	var commands strings.Builder
	for _, match := range commandOf.FindAllStringSubmatch(session, -1) {
		commands.WriteString(match[1] + "\n")
	}
	return commands.String()
}

// parseMessage parses the head of an HTTP message, or some of its fields, and a body of JSON.
func parseMessage(message string) error {
	r := bufio.NewReader(strings.NewReader(message + "\r\n"))
	if strings.HasPrefix(message, "HTTP/") {
		response, err := http.ReadResponse(r, nil)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			return err
		}
		return parseJSON(string(body))
	}
	_, err := textproto.NewReader(r).ReadMIMEHeader()
	return err
}

// parseJSON parses a document, or one in each line.
func parseJSON(text string) error {
	decoder := json.NewDecoder(strings.NewReader(text))
	for {
		if err := decoder.Decode(new(any)); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}
