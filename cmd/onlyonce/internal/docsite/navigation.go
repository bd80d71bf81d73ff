package docsite

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/yuin/goldmark/ast"
)

// home is the page that lists the others.
const home = "README.md"

// A Group is a section of the navigation.
type Group struct {
	Title   string
	Entries []Entry
}

// An Entry is a page in the navigation, under the name that the home page gives it.
type Entry struct {
	Title, Path string
	page        *page
}

// navigation returns the groups of pages that the home page lists: the links with which the
// items of its lists begin. It returns an error if a page is listed never or twice.
func navigation(pages map[string]*page) ([]Group, error) {
	top := pages[home]
	if top == nil {
		return nil, fmt.Errorf("there is no page %s", home)
	}
	var groups []Group
	var mistakes []error
	unlisted := maps.Clone(pages)
	delete(unlisted, home)
	for block := top.document.FirstChild(); block != nil; block = block.NextSibling() {
		switch block := block.(type) {
		case *ast.Heading:
			groups = append(groups, Group{Title: top.plain(block)})
		case *ast.List:
			group := &groups[len(groups)-1]
			for item := block.FirstChild(); item != nil; item = item.NextSibling() {
				link := leadingLink(item)
				if link == nil {
					mistakes = append(mistakes, fmt.Errorf("%s: an item of %q does not begin with a link", home, group.Title))
					continue
				}
				source := path.Clean(string(link.Destination))
				listed := unlisted[source]
				if listed == nil {
					mistakes = append(mistakes, fmt.Errorf("%s: %s is no page, or is listed twice", home, source))
					continue
				}
				delete(unlisted, source)
				group.Entries = append(group.Entries, Entry{top.plain(link), listed.path, listed})
			}
		}
	}
	for _, source := range slices.Sorted(maps.Keys(unlisted)) {
		mistakes = append(mistakes, fmt.Errorf("%s does not list %s", home, source))
	}
	groups = slices.DeleteFunc(groups, func(g Group) bool { return len(g.Entries) == 0 })
	return groups, errors.Join(mistakes...)
}

// leadingLink returns the link with which an item of a list begins, or nil.
func leadingLink(item ast.Node) *ast.Link {
	content := item.FirstChild()
	if content == nil {
		return nil
	}
	link, _ := content.FirstChild().(*ast.Link)
	return link
}
