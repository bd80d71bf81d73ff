package docsite

import (
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/internal/needs"
)

// Code fragments use these packages without importing them.
const packages = `
	context database/sql encoding/json errors log/slog net/http net/http/httptest os testing testing/synctest time
	github.com/onlyonce-go/onlyonce
	github.com/onlyonce-go/onlyonce/adapters/otelonce
	github.com/onlyonce-go/onlyonce/adapters/promonce
	github.com/onlyonce-go/onlyonce/adapters/watermillonce
	github.com/onlyonce-go/onlyonce/conform
	github.com/onlyonce-go/onlyonce/console
	github.com/onlyonce-go/onlyonce/httponce
	github.com/onlyonce-go/onlyonce/inbox
	github.com/onlyonce-go/onlyonce/outbox
	github.com/onlyonce-go/onlyonce/stores/cryptstore
	github.com/onlyonce-go/onlyonce/stores/dynamostore
	github.com/onlyonce-go/onlyonce/stores/memstore
	github.com/onlyonce-go/onlyonce/stores/sqlstore
	github.com/aws/aws-sdk-go-v2/aws
	github.com/aws/aws-sdk-go-v2/service/dynamodb/types
	github.com/prometheus/client_golang/prometheus
	github.com/rabbitmq/amqp091-go
	github.com/ThreeDotsLabs/watermill/message
	github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp
	modernc.org/sqlite`

// The tests of other modules compare the code of these pages with code that they run.
var testedElsewhere = []string{"docs/client.md", "docs/frameworks.md", "docs/messages.md", "docs/migrating.md"}

// A fragment may use names that it does not declare, but each call, field and type of a package
// must be right.
func TestDocuments_GoCodeUsesPackagesAsTheyAre(t *testing.T) {
	needs.Time(t)
	paths, check := newChecker(t)
	checked := 0
	for _, b := range codeBlocks(t, testedElsewhere...) {
		if b.language != "go" {
			continue
		}
		checked++
		for _, err := range check(fileOf(t, b, paths)) {
			t.Errorf("%s: %v", b.where, err)
		}
	}
	if checked < 15 {
		t.Errorf("only %d code blocks were checked", checked)
	}
	for mistake, code := range map[string]string{
		"undefined: onlyonce.Confg": `guard := onlyonce.New(store, onlyonce.Confg{})`,
		"unknown field Hold":        `guard := onlyonce.New(store, onlyonce.Config{Hold: true})`,
		"not enough arguments":      `err := sqlstore.Migrate(ctx)`,
		"has no field or method":    `guard.Comit(ctx)`,
		"expected":                  `guard := `,
	} {
		b := block{"here", "go", "guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{})\n" + strings.Replace(code, "guard :=", "guard =", 1) + "\n"}
		if got := errors.Join(check(fileOf(t, b, paths))...); got == nil || !strings.Contains(got.Error(), mistake) {
			t.Errorf("%s: %v, want %s", code, got, mistake)
		}
	}
}

// fileOf returns a Go file with the code of a block, and with the imports that it needs. An
// ellipsis in the code becomes a name.
func fileOf(t *testing.T, b block, paths map[string]string) string {
	t.Helper()
	code := strings.ReplaceAll(b.code, "…", "ellipsis")
	if strings.Contains(code, "\npackage ") || strings.HasPrefix(code, "package ") {
		return code
	}
	body := "\n" + code
	if _, err := parser.ParseFile(token.NewFileSet(), "", "package fragment"+body, 0); err != nil {
		body = "\nfunc fragment() error {\n" + code + "}\n"
	}
	file, _ := parser.ParseFile(token.NewFileSet(), "", "package fragment"+body, 0) // check reports the error
	imports := ""
	if file != nil {
		imported := map[string]bool{}
		for _, name := range file.Unresolved {
			if path := paths[name.Name]; path != "" && !imported[path] && isPackage(file, name) {
				imported[path] = true
				imports += fmt.Sprintf("import %q; ", path)
			}
		}
	}
	return "package fragment; " + imports + body
}

// isPackage reports whether something is selected from a name.
func isPackage(file *ast.File, name *ast.Ident) (is bool) {
	ast.Inspect(file, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		is = is || ok && selector.X == name
		return true
	})
	return is
}

// tolerated matches the mistakes of code that is only a part of a program.
var tolerated = regexp.MustCompile(`^undefined: \w+$|^declared and not used|^missing return$`)

// newChecker returns the paths of the packages that fragments may use, by their names, and a
// function that returns the mistakes in a Go file.
func newChecker(t *testing.T) (paths map[string]string, check func(file string) []error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-export", "-deps", "-f", "{{.Name}} {{.ImportPath}} {{.DepOnly}} {{.Export}}"}, strings.Fields(packages)...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	paths, exports := map[string]string{}, map[string]string{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if fields[2] == "false" {
			paths[fields[0]] = fields[1]
		}
		if len(fields) == 4 {
			exports[fields[1]] = fields[3]
		}
	}
	files := token.NewFileSet()
	imported := importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("it is not in the list of packages")
		}
		return os.Open(exports[path])
	})
	return paths, func(file string) (mistakes []error) {
		parsed, err := parser.ParseFile(files, "", file, 0)
		if err != nil {
			return []error{err}
		}
		lines := strings.Split(file, "\n")
		config := types.Config{Importer: imported, Error: func(err error) {
			mistake := err.(types.Error)
			line := lines[files.Position(mistake.Pos).Line-1]
			if !tolerated.MatchString(mistake.Msg) && !strings.Contains(line, "ellipsis") {
				mistakes = append(mistakes, fmt.Errorf("%s, in %s", mistake.Msg, strings.TrimSpace(line)))
			}
		}}
		_, _ = config.Check("fragment", files, []*ast.File{parsed}, nil) // the function above gets every error
		return mistakes
	}
}
