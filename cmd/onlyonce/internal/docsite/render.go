package docsite

import (
	"bytes"
	_ "embed" // for the frame of a page
	"fmt"
	"html/template"
	"net/url"
	"path"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/util"
)

// repository is the address of the repository's files.
const repository = "https://github.com/onlyonce-go/onlyonce/blob/main/"

// markdown reads and writes what GitHub's dialect has and the pages use. The policy of the site
// allows no style attributes, which would otherwise align the cells of tables.
var markdown = goldmark.New(
	goldmark.WithExtensions(extension.Linkify, extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute))),
	goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(blocks{}, 100))), // before goldmark's own
)

// target returns where a link of the page leads on the site.
func (p *page) target(destination string, pages map[string]*page, files map[string][]byte) string {
	u, err := url.Parse(destination)
	if err != nil || u.IsAbs() || u.Host != "" || u.Path == "" {
		return destination
	}
	inDocs := path.Join(path.Dir(p.source), u.Path)
	if to := pages[inDocs]; to != nil {
		u.Path = p.root() + to.path
	} else if files[inDocs] != nil {
		u.Path = p.root() + inDocs
	} else {
		return repository + path.Join("docs", inDocs) + strings.TrimPrefix(destination, u.Path)
	}
	return u.String()
}

// root returns the relative path from the page to the root of the site.
func (p *page) root() string { return strings.Repeat("../", strings.Count(p.path, "/")) }

//go:embed assets/page.html
var frameText string

var frame = template.Must(template.New("page").Parse(frameText))

// render returns the page as HTML, in the frame that all pages have.
func (p *page) render(groups []Group, previous, next *page) ([]byte, error) {
	var body bytes.Buffer
	if err := markdown.Renderer().Render(&body, p.text, p.document); err != nil {
		return nil, fmt.Errorf("%s: %w", p.source, err)
	}
	content := strings.NewReplacer("<table>", `<div class="table"><table>`, "</table>", "</table></div>").Replace(body.String())
	type heading struct{ Level, ID, Text string }
	var contents []heading
	for _, s := range p.sections {
		if s.level == 2 || s.level == 3 {
			contents = append(contents, heading{fmt.Sprint("level", s.level), s.id, s.heading})
		}
	}
	data := map[string]any{
		"Root": p.root(), "Path": p.path, "Title": p.title(), "Summary": p.summary(), "Groups": groups,
		"Content": template.HTML(content), "Contents": contents, "Source": repository + "docs/" + p.source,
	}
	for name, neighbor := range map[string]*page{"Previous": previous, "Next": next} {
		if neighbor != nil {
			data[name] = Entry{Title: neighbor.title(), Path: neighbor.path}
		}
	}
	var html bytes.Buffer
	if err := frame.Execute(&html, data); err != nil {
		return nil, fmt.Errorf("%s: %w", p.source, err)
	}
	return html.Bytes(), nil
}

// blocks renders the blocks that differ from what goldmark makes of them.
type blocks struct{}

func (blocks) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindHeading, renderHeading)
	r.Register(ast.KindFencedCodeBlock, renderCode)
}

// renderHeading adds a link to the section to its heading.
func renderHeading(w util.BufWriter, _ []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	h := node.(*ast.Heading)
	id, _ := h.AttributeString("id")
	switch {
	case entering && id == nil: // it is within another block
		_, _ = fmt.Fprintf(w, "<h%d>", h.Level)
	case entering:
		_, _ = fmt.Fprintf(w, `<h%d id="%s">`, h.Level, id)
	case h.Level == 1 || id == nil:
		_, _ = fmt.Fprintf(w, "</h%d>\n", h.Level)
	default:
		_, _ = fmt.Fprintf(w, ` <a class="anchor" href="#%s" aria-label="Link to this section">#</a></h%d>`+"\n", id, h.Level)
	}
	return ast.WalkContinue, nil
}

func renderCode(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		block := node.(*ast.FencedCodeBlock)
		code := highlight(string(block.Language(source)), string(codeOf(block, source)))
		_, _ = w.WriteString("<pre><code>" + code + "</code></pre>\n")
	}
	return ast.WalkContinue, nil
}
