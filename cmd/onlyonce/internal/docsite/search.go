package docsite

import "encoding/json"

// An indexPage is a page in the search index.
type indexPage struct {
	Path  string `json:"path"`
	Title string `json:"title"`
}

// An indexSection is a section in the search index.
type indexSection struct {
	Page    int    `json:"page"` // its place in the list of pages
	ID      string `json:"id"`   // empty for the title
	Heading string `json:"heading"`
	Text    string `json:"text"`
}

// searchIndex returns a script with the text of the pages. It is a script because a browser
// that shows a file lets it load scripts, but no other data.
func searchIndex(pages []*page) ([]byte, error) {
	var index struct {
		Pages    []indexPage    `json:"pages"`
		Sections []indexSection `json:"sections"`
	}
	for i, p := range pages {
		index.Pages = append(index.Pages, indexPage{p.path, p.title()})
		for n, s := range p.sections {
			if n == 0 {
				s.id = ""
			}
			index.Sections = append(index.Sections, indexSection{i, s.id, s.heading, s.text})
		}
	}
	text, err := json.Marshal(index)
	return append(append([]byte("window.searchIndex = "), text...), ";\n"...), err
}
