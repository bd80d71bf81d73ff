// Package docsite turns the Markdown pages of docs into a website: with a navigation, a table of
// contents for each page, and a search that needs no server. Any web server can serve its files,
// and a browser can open them without one.
package docsite

import (
	"bytes"
	"embed"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"
)

// A Site has the contents of a website's files, by their paths.
type Site map[string][]byte

//go:embed assets/style.css assets/script.js assets/icon.svg
var assets embed.FS

// Build returns the site of the pages and images in docs. The same files result in the same site.
//
// README.md becomes index.html. The lists of links in its sections are the navigation, so it has
// to link to each of the other pages once. A link to a page leads to that page of the site, and
// a link to any other file of the repository leads to GitHub. Raw HTML is left out.
func Build(docs fs.FS) (Site, error) {
	files, err := readAll(docs)
	if err != nil {
		return nil, err
	}
	pages := map[string]*page{}
	for name, text := range files {
		if path.Ext(name) == ".md" {
			if pages[name], err = parse(name, text); err != nil {
				return nil, err
			}
			delete(files, name)
		}
	}
	groups, err := navigation(pages)
	if err != nil {
		return nil, err
	}
	list := []*page{pages[home]} // in the order of the navigation
	for _, g := range groups {
		for _, e := range g.Entries {
			list = append(list, e.page)
		}
	}
	site := Site(files)
	for i, p := range list {
		p.links(func(destination *[]byte) { *destination = []byte(p.target(string(*destination), pages, files)) })
		if site[p.path], err = p.render(groups, neighbor(list, i-1), neighbor(list, i+1)); err != nil {
			return nil, err
		}
	}
	if site["search-index.js"], err = searchIndex(list); err != nil {
		return nil, err
	}
	shared, err := readAll(assets)
	for name, text := range shared {
		site[path.Base(name)] = text
	}
	return site, err
}

// readAll returns the contents of all files, by their names.
func readAll(from fs.FS) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := fs.WalkDir(from, ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files[name], err = fs.ReadFile(from, name)
		}
		return err
	})
	return files, err
}

// neighbor returns the page at a place of the list, or nil beyond its ends.
func neighbor(list []*page, i int) *page {
	if i < 0 || i >= len(list) {
		return nil
	}
	return list[i]
}

// Write writes the files of the site into a directory, which it creates. It deletes no file.
func (s Site) Write(dir string) error {
	for _, name := range slices.Sorted(maps.Keys(s)) {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, s[name], 0o644); err != nil {
			return err
		}
	}
	return nil
}

// policy is the Content-Security-Policy: pages use the site's own files, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"

// Handler returns a handler that serves the site.
func (s Site) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{path...}", func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("path")
		if name == "" {
			name = "index.html"
		}
		content, ok := s[name]
		w.Header().Set("Content-Security-Policy", policy)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Referrer-Policy", "no-referrer")
		w.Header().Set("Cache-Control", "no-cache") // the next version may listen at the same address
		if !ok {
			http.Error(w, "There is no such page.", http.StatusNotFound)
			return
		}
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
	})
	return mux
}
