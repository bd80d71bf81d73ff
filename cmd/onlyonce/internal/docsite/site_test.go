package docsite

import (
	"bytes"
	"html"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/onlyonce-go/onlyonce/docs"
)

// root is the folder of the repository.
const root = "../../../../"

// build returns the site of the documentation.
func build(t *testing.T) Site {
	t.Helper()
	site, err := Build(docs.Files)
	if err != nil {
		t.Fatal(err)
	}
	return site
}

// small has a home page and two others.
func small() fstest.MapFS {
	files := fstest.MapFS{}
	for name, text := range map[string]string{
		"README.md": "# Home\n\nHello. Read on.\n\n## Guides\n\n- [The first](one.md): it is first\n\n## APIs of `serve`\n\n- [The second](api/two.md)\n",
		"one.md":    "# One\n\nSee [two](api/two.md#a-b-c), [code](../do.go#L7), [here](#end), [a page](https://example.com/a.md), ![a picture](img/x.svg).\n\n## End\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n<script>run()</script>\n",
		"api/two.md": "# Two & `more`\n\nBack to [one](../one.md), [home](../README.md), [the README](../../README.md#x).\n\n### `a`: b, c\n\n" +
			"```go\nreturn \"a<b\" // why\n```\n",
		"img/x.svg": "<svg/>",
	} {
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return files
}

func TestBuild_LinksLeadToPagesAndOtherwiseToGitHub(t *testing.T) {
	site, err := Build(small())
	if err != nil {
		t.Fatal(err)
	}
	for name, parts := range map[string][]string{
		"index.html": {
			`<a href="one.html">The first</a>`, `<h2>APIs of serve</h2>`, `<title>Home · Onlyonce</title>`, `content="Hello."`,
			`rel="next"><span>Next</span>One</a>`,
		},
		"one.html": {
			`<a href="api/two.html#a-b-c">two</a>`, `<a href="https://github.com/onlyonce-go/onlyonce/blob/main/do.go#L7">code</a>`,
			`<a href="#end">here</a>`, `<a href="https://example.com/a.md">a page</a>`, `<img src="img/x.svg" alt="a picture">`,
			`<h2 id="end">End <a class="anchor" href="#end"`, `<div class="table"><table>`, `<td align="right">2</td>`,
			`<a href="one.html" aria-current="page">The first</a>`, `rel="prev"><span>Previous</span>Home</a>`,
			`https://github.com/onlyonce-go/onlyonce/blob/main/docs/one.md`, `<title>One · Onlyonce</title>`,
		},
		"api/two.html": {
			`<a href="../one.html">one</a>`, `<a href="../index.html">home</a>`, `<a href="https://github.com/onlyonce-go/onlyonce/blob/main/README.md#x">the README</a>`,
			`<h3 id="a-b-c"><code>a</code>: b, c <a`, `href="../style.css"`, `<h1 id="two--more">Two &amp; <code>more</code></h1>`,
			`<span class="k">return</span> <span class="s">&#34;a&lt;b&#34;</span> <span class="c">// why</span>`,
		},
		"img/x.svg":       {"<svg/>"},
		"search-index.js": {`{"page":2,"id":"","heading":"Two \u0026 more","text":"Back to one, home, the README."}`, `"text":"a b 1 2"`},
	} {
		for _, part := range parts {
			if !bytes.Contains(site[name], []byte(part)) {
				t.Errorf("%s does not have %s:\n%s", name, part, site[name])
			}
		}
	}
	if bytes.Contains(site["one.html"], []byte("run()")) {
		t.Error("raw HTML is in a page")
	}
}

func TestBuild_TheHomePageListsEveryPageOnce(t *testing.T) {
	for name, c := range map[string]struct{ old, text, want string }{
		"never":           {"- [The second](api/two.md)\n", "", "README.md does not list api/two.md"},
		"twice":           {"- [The second](api/two.md)\n", "- [The second](api/two.md)\n- [Again](one.md)\n", `one.md is no page, or is listed twice`},
		"no page":         {"api/two.md", "api/three.md", "api/three.md is no page"},
		"not with a link": {"- [The second]", "- It is [the second]", `an item of "APIs of serve" does not begin with a link`},
	} {
		files := small()
		files["README.md"].Data = []byte(strings.Replace(string(files["README.md"].Data), c.old, c.text, 1))
		if _, err := Build(files); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	files := small()
	delete(files, "README.md")
	if _, err := Build(files); err == nil {
		t.Error("a site has no home page")
	}
	files = small()
	files["one.md"].Data = []byte("Text\n\n# Title\n")
	if _, err := Build(files); err == nil || !strings.Contains(err.Error(), "one.md does not begin with a title") {
		t.Errorf("a page without a title: %v", err)
	}
}

func TestAnchor_IsTheOneThatGitHubMakes(t *testing.T) {
	taken := map[string]bool{}
	for _, c := range []struct{ heading, want string }{
		{"What happens when …", "what-happens-when-"},
		{"A command in one transaction (DoTx, WrapTx)", "a-command-in-one-transaction-dotx-wraptx"},
		{"net/http", "nethttp"},
		{"fiber's middleware", "fibers-middleware"},
		{"idempotency_key_missing", "idempotency_key_missing"},
		{"2. Words", "2-words"},
		{"Où — ½?", "où--"},
		{"Limits", "limits"},
		{"Limits", "limits-1"},
		{"Limits", "limits-2"},
	} {
		if got := anchor(c.heading, taken); got != c.want {
			t.Errorf("%q has %q, want %q", c.heading, got, c.want)
		}
	}
}

var (
	reference = regexp.MustCompile(`(?:href|src)="([^"]*)"`)
	element   = regexp.MustCompile(` id="([^"]*)"`)
)

func TestSite_EveryLinkLeadsToAFileAndAnElementThatExist(t *testing.T) {
	site := build(t)
	elements := map[string]map[string]bool{}
	for name, content := range site {
		elements[name] = map[string]bool{}
		for _, id := range element.FindAllSubmatch(content, -1) {
			if path.Ext(name) == ".html" && elements[name][string(id[1])] {
				t.Errorf("%s: two elements have the id %s", name, id[1])
			}
			elements[name][string(id[1])] = true
		}
	}
	links := 0
	for name, content := range site {
		if path.Ext(name) != ".html" {
			continue
		}
		for _, match := range reference.FindAllSubmatch(content, -1) {
			link := html.UnescapeString(string(match[1]))
			u, err := url.Parse(link)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if file, ours := strings.CutPrefix(link, repository); ours {
				file, _, _ = strings.Cut(file, "#")
				if _, err := os.Stat(root + file); err != nil {
					t.Errorf("%s: %s: %v", name, link, err)
				}
				continue
			}
			if u.IsAbs() {
				continue
			}
			links++
			to := name
			if u.Path != "" {
				to = path.Join(path.Dir(name), u.Path)
			}
			if _, ok := site[to]; !ok {
				t.Errorf("%s: %s: there is no such file", name, link)
			} else if u.Fragment != "" && !elements[to][u.Fragment] {
				t.Errorf("%s: %s: there is no such section", name, link)
			}
		}
	}
	if links < 1000 {
		t.Errorf("only %d links were found: the pattern no longer fits them", links)
	}
}

func TestSite_HasNoRawHTMLAndNothingThatItsPolicyForbids(t *testing.T) {
	forbidden := regexp.MustCompile(`raw HTML omitted|<style| style="|<script>| on[a-z]+="|<link[^>]*href="http|src="http`)
	for name, content := range build(t) {
		if found := forbidden.Find(content); path.Ext(name) == ".html" && found != nil {
			t.Errorf("%s has %s", name, found)
		}
	}
}

func TestSite_IsTheSameEveryTime(t *testing.T) {
	if !maps.EqualFunc(build(t), build(t), bytes.Equal) {
		t.Error("two builds of the same pages differ")
	}
}

func TestSite_IsServedWithAStrictPolicy(t *testing.T) {
	h := build(t).Handler()
	for _, c := range []struct {
		method, path string
		status       int
		kind, part   string
	}{
		{"GET", "/", 200, "text/html; charset=utf-8", "<title>Documentation · Onlyonce</title>"},
		{"GET", "/index.html", 200, "text/html; charset=utf-8", "<title>Documentation · Onlyonce</title>"},
		{"GET", "/api/orders.html", 200, "text/html; charset=utf-8", "Orders API"},
		{"GET", "/search-index.js", 200, "text/javascript; charset=utf-8", "window.searchIndex"},
		{"GET", "/style.css", 200, "text/css; charset=utf-8", ":root"},
		{"GET", "/img/sequence-wrap.svg", 200, "image/svg+xml", "<svg"},
		{"GET", "/api/", 404, "text/plain; charset=utf-8", "no such page"},
		{"GET", "/proxy.md", 404, "text/plain; charset=utf-8", "no such page"},
		{"HEAD", "/", 200, "text/html; charset=utf-8", ""},
		{"POST", "/", 405, "text/plain; charset=utf-8", ""},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		if w.Code != c.status || w.Header().Get("Content-Type") != c.kind || !strings.Contains(w.Body.String(), c.part) {
			t.Errorf("%s %s: %d, %s, %.200s", c.method, c.path, w.Code, w.Header(), w.Body)
		}
		if c.status != http.StatusMethodNotAllowed && w.Header().Get("Content-Security-Policy") != policy {
			t.Errorf("%s %s has the policy %q", c.method, c.path, w.Header().Get("Content-Security-Policy"))
		}
	}
}
