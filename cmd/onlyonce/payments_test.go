package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/proxyfile"
)

// money matches the names of routes that move money.
var money = regexp.MustCompile(`(?i)pay|charge|checkout|transfer|refund|withdraw`)

// wholeFile is a block that is a file of settings, or its routes.
var wholeFile = regexp.MustCompile(`(?m)^(routes|tenant|upstreams|store|defaults):`)

// yamlOf returns the settings in a document: the blocks of Markdown, or the file.
func yamlOf(path, text string) (files []string) {
	if filepath.Ext(path) != ".md" {
		return []string{text}
	}
	for _, block := range strings.Split(text, "```yaml\n")[1:] {
		file, _, _ := strings.Cut(block, "```")
		files = append(files, file)
	}
	return files
}

// careless returns the routes of a file that move money, and take a request
// without a key or repeat one whose outcome nobody knows.
func careless(t *testing.T, name, text string) (routes []string, checked int) {
	t.Helper()
	f, err := proxyfile.Parse(name, []byte(text))
	if err != nil {
		text = "tenant: {single: true}\nupstreams: [{url: \"http://127.0.0.1:3000\"}]\n" + text // only routes
		if f, err = proxyfile.Parse(name, []byte(text)); err != nil {
			t.Errorf("%s: %v", name, err)
			return nil, 0
		}
	}
	for _, r := range f.Routes {
		if !money.MatchString(r.Match) {
			continue
		}
		checked++
		if !r.Key.Required || r.Unknown != "hold" {
			routes = append(routes, r.Match)
		}
	}
	return routes, checked
}

func TestPayments_EveryExampleThatMovesMoneyRequiresAKeyAndHoldsUnknownOutcomes(t *testing.T) {
	checked := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch ext := filepath.Ext(path); {
		case err != nil:
			return err
		case d.IsDir() && path != "../.." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" || d.Name() == "helm"): // a chart's values are not a file of the proxy
			return filepath.SkipDir
		case d.IsDir() || ext != ".md" && ext != ".yaml" && ext != ".yml":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, file := range yamlOf(path, string(text)) {
			if !wholeFile.MatchString(file) || !strings.Contains(file, "match:") {
				continue
			}
			routes, n := careless(t, path, file)
			checked += n
			if len(routes) > 0 {
				t.Errorf("%s: write key: {required: true} and unknown: hold for %q", path, routes)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	printed := strings.ReplaceAll(proxyfile.Print(proxyfile.New()), "\n# routes:", "\nroutes:")
	_, example, _ := strings.Cut(printed, "\nroutes:\n")
	example = "routes:\n" + strings.ReplaceAll("\n"+example, "\n#", "\n")
	routes, n := careless(t, "--print-config", example)
	if checked += n; len(routes) > 0 || n == 0 {
		t.Errorf("--print-config shows %d routes that move money, without care for %q:\n%s", n, routes, example)
	}
	if checked < 2 {
		t.Errorf("only %d routes that move money were found", checked)
	}
	bad := "routes: [{match: POST /payments, unknown: hold}, {match: POST /refunds, key: {required: true}}, {match: POST /notes}]\n"
	if routes, n := careless(t, "bad", bad); len(routes) != 2 || n != 2 {
		t.Errorf("%q of %d are found careless in %s", routes, n, bad)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(readme)) {
		if strings.Contains(line, "httponce.Wrap(") && money.MatchString(line) && !strings.Contains(line, "Required: true") {
			t.Errorf("README.md: this takes a request without a key: %s", line)
		}
	}
}
