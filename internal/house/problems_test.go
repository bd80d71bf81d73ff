package house

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// problemsOf returns the statuses of the problems in the source of a folder, by their codes.
// constants has the values of constants that name codes, and gets those of the folder.
func problemsOf(t *testing.T, folder string, constants map[string]string) map[string][]int {
	t.Helper()
	statuses := map[string]int{}
	for status := 100; status < 600; status++ {
		statuses["Status"+strings.ReplaceAll(http.StatusText(status), " ", "")] = status
	}
	files, err := filepath.Glob(folder + "/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var parsed []*ast.File
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, f)
	}
	text := func(e ast.Expr) string {
		lit, ok := e.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return ""
		}
		value, _ := strconv.Unquote(lit.Value)
		return value
	}
	found := map[string][]int{}
	for _, f := range parsed {
		ast.Inspect(f, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == 1 && strings.HasPrefix(spec.Names[0].Name, "Code") && text(spec.Values[0]) != "" {
				constants[spec.Names[0].Name] = text(spec.Values[0])
				found[text(spec.Values[0])] = nil
			}
			return true
		})
	}
	for _, f := range parsed {
		ast.Inspect(f, func(n ast.Node) bool {
			lit, ok := n.(*ast.CompositeLit)
			if !ok {
				return true
			}
			var code, status string
			for _, element := range lit.Elts {
				pair, ok := element.(*ast.KeyValueExpr)
				if !ok {
					return true
				}
				name, value := fmt.Sprint(pair.Key), pair.Value
				if selected, ok := value.(*ast.SelectorExpr); ok {
					value = selected.Sel
				}
				constant, _ := value.(*ast.Ident)
				switch {
				case name == "Code" && constant != nil:
					code = constants[constant.Name]
				case name == "Code":
					code = text(value)
				case name == "Status" && constant != nil:
					status = constant.Name
				}
			}
			if code != "" && statuses[status] != 0 {
				found[code] = append(found[code], statuses[status])
			}
			return true
		})
	}
	return found
}

func TestHouse_EveryProblemHasItsSection(t *testing.T) {
	root := repository(t)
	page, err := os.ReadFile(root + "/docs/problems.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, section := range strings.Split(string(page), "\n### ")[1:] {
		code, text, _ := strings.Cut(section, "\n")
		text, _, _ = strings.Cut(text, "\n## ")
		sections[code] = text
	}
	constants, problems := map[string]string{}, map[string][]int{}
	for _, folder := range []string{"httponce", "proxy", "cmd/onlyonce/internal/proxycmd"} { // httponce has the constants
		for code, statuses := range problemsOf(t, root+"/"+folder, constants) {
			problems[code] = append(problems[code], statuses...)
		}
	}
	if len(constants) < 14 || len(problems) < 20 {
		t.Fatalf("only %d constants and %d problems were found", len(constants), len(problems))
	}
	number := regexp.MustCompile(`\b[45]\d\d\b`)
	for code, statuses := range problems {
		text, ok := sections[code]
		if !ok {
			t.Errorf("docs/problems.md has no section ### %s", code)
			continue
		}
		first, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
		for _, status := range statuses {
			if !slices.Contains(number.FindAllString(first, -1), strconv.Itoa(status)) {
				t.Errorf("docs/problems.md, %s, begins with %q, and its status can be %d", code, first, status)
			}
		}
		for _, part := range []string{"**What it means.**", "**What the client does.**", "**What the operator looks at.**"} {
			if !strings.Contains(text, "\n"+part+" ") {
				t.Errorf("docs/problems.md, %s, does not say %s", code, part)
			}
		}
	}
	for code := range sections {
		if _, ok := problems[code]; !ok {
			t.Errorf("docs/problems.md has a section ### %s: no problem has this code", code)
		}
	}
}
