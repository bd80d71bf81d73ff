package docsite

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// A page is a Markdown file.
type page struct {
	source   string // its path in docs, such as api/items.md
	path     string // its path on the site, such as api/items.html
	text     []byte
	document ast.Node
	sections []section // the first is that of the title
}

// A section is a heading, with the text up to the next one.
type section struct {
	level   int // 1: the title
	id      string
	heading string
	text    string
}

// parse reads a page, which has to begin with its title. Its headings get the anchors that GitHub
// gives them.
func parse(source string, markdownText []byte) (*page, error) {
	p := &page{source: source, text: markdownText, document: markdown.Parser().Parse(text.NewReader(markdownText))}
	p.path = strings.TrimSuffix(source, ".md") + ".html"
	if source == home {
		p.path = "index.html"
	}
	if title, ok := p.document.FirstChild().(*ast.Heading); !ok || title.Level != 1 {
		return nil, fmt.Errorf("%s does not begin with a title", source)
	}
	taken := map[string]bool{}
	for block := p.document.FirstChild(); block != nil; block = block.NextSibling() {
		content := p.plain(block)
		if h, ok := block.(*ast.Heading); ok {
			id := anchor(content, taken)
			h.SetAttributeString("id", []byte(id))
			p.sections = append(p.sections, section{level: h.Level, id: id, heading: content})
		} else {
			last := &p.sections[len(p.sections)-1]
			last.text = strings.TrimSpace(last.text + " " + content)
		}
	}
	return p, nil
}

// title returns the title of the page.
func (p *page) title() string { return p.sections[0].heading }

// summary returns the first sentence of the page.
func (p *page) summary() string {
	sentence, _, _ := strings.Cut(p.sections[0].text, ". ")
	return strings.TrimSuffix(sentence, ".") + "."
}

// anchor returns the anchor that GitHub gives a heading, and adds it to those taken on the page.
func anchor(heading string, taken map[string]bool) string {
	base := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Pc):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
	id := base
	for n := 1; taken[id]; n++ {
		id = base + "-" + strconv.Itoa(n)
	}
	taken[id] = true
	return id
}

// plain returns the text of a node without markup, with single spaces.
func (p *page) plain(node ast.Node) string {
	var b bytes.Buffer
	_ = ast.Walk(node, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			if n.Type() == ast.TypeBlock {
				b.WriteByte(' ') // between paragraphs and the cells of a table
			}
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Text:
			value := n.Segment.Value(p.text)
			if n.Parent().Kind() != ast.KindCodeSpan {
				value = util.ResolveEntityNames(util.ResolveNumericReferences(util.UnescapePunctuations(value)))
			}
			b.Write(value)
			if n.SoftLineBreak() || n.HardLineBreak() {
				b.WriteByte(' ')
			}
		case *ast.AutoLink:
			b.Write(n.Label(p.text))
		case *ast.FencedCodeBlock:
			b.Write(codeOf(n, p.text))
		}
		return ast.WalkContinue, nil
	})
	return strings.Join(strings.Fields(b.String()), " ")
}

// codeOf returns the lines of a code block of a text.
func codeOf(block ast.Node, text []byte) []byte {
	var code []byte
	for i := range block.Lines().Len() {
		line := block.Lines().At(i)
		code = append(code, line.Value(text)...)
	}
	return code
}

// links calls f for the destination of each link and image, which f may change.
func (p *page) links(f func(destination *[]byte)) {
	_ = ast.Walk(p.document, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Link:
			if entering {
				f(&n.Destination)
			}
		case *ast.Image:
			if entering {
				f(&n.Destination)
			}
		}
		return ast.WalkContinue, nil
	})
}
