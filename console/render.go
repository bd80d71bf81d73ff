package console

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"html/template"
	"maps"
	"net/http"
	"path"
	"slices"

	"github.com/onlyonce-go/onlyonce"
)

//go:embed pages
var pageFiles embed.FS

//go:embed assets
var assetFiles embed.FS

// An asset is a file that pages load.
type asset struct {
	content []byte
	kind    string
}

// assets are those of all pages, by name.
var assets = map[string]asset{
	"style.css": {read("style.css"), "text/css; charset=utf-8"},
	"script.js": {read("script.js"), "text/javascript; charset=utf-8"},
	"icon.svg":  {read("icon.svg"), "image/svg+xml"},
}

// version changes with the assets, so that browsers may keep them.
var version = func() string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(assets)) {
		h.Write(assets[name].content)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}()

// read returns a file that is part of the program.
func read(name string) []byte {
	content, err := assetFiles.ReadFile("assets/" + name)
	if err != nil {
		panic(err)
	}
	return content
}

func serveAsset(w http.ResponseWriter, r *http.Request) {
	a := assets[path.Base(r.URL.Path)]
	w.Header().Set("Content-Type", a.kind)
	if r.URL.Query().Get("v") == version {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	_, _ = w.Write(a.content) // a client that is gone needs none
}

// pages are the templates by the names of their files.
type pages map[string]*template.Template

func parsePages() (pages, error) {
	files, err := pageFiles.ReadDir("pages")
	if err != nil {
		return nil, err
	}
	all := make(pages)
	for _, file := range files {
		name := file.Name()
		if name == "layout.html" || name == "list.html" { // parts of the others
			continue
		}
		t, err := template.ParseFS(pageFiles, "pages/layout.html", "pages/list.html", "pages/"+name)
		if err != nil {
			return nil, err
		}
		all[name[:len(name)-len(".html")]] = t
	}
	return all, nil
}

// A view holds the values that a template shows.
type view struct {
	Title     string
	Base      string // the console's path
	Version   string
	Store     string
	Who       string // empty: no person is logged in
	Role      Role
	FormToken string
	Nav       []tab
	Page      any
}

// A tab leads to a page.
type tab struct {
	Name, Href, ID string
	Current        bool
	Count          string // of commands and messages that wait for a person; empty: none
}

// CanWrite reports whether the person may decide.
func (v view) CanWrite() bool { return v.Role == Writer }

// render responds with a page.
func (c *console) render(w http.ResponseWriter, s *session, status int, name, title string, data any) {
	v := view{Title: title, Base: c.path, Version: version, Store: show(c.name), Page: data}
	if s != nil {
		v.Who, v.Role, v.FormToken, v.Nav = s.Name, s.Role, c.formToken(s.id), c.tabs(name)
	}
	var page bytes.Buffer
	if err := c.pages[name].ExecuteTemplate(&page, "layout", v); err != nil {
		c.log.Error("console: a page could not be rendered", "page", name, "error", err)
		http.Error(w, "The page could not be rendered. The server's log says why.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = page.WriteTo(w) // a client that is gone needs none
}

// tabs are those above a page.
func (c *console) tabs(current string) []tab {
	now := c.gauges.last()
	list := []tab{
		{Name: "Overview", Href: c.path, ID: "overview"},
		{Name: "Records", Href: c.path + "records", ID: "records"},
		{Name: "Decisions", Href: c.path + "decisions", ID: "decisions", Count: now.decisions()},
	}
	if c.outbox != nil {
		list = append(list, tab{Name: "Messages", Href: c.path + "messages", ID: "messages", Count: now.parkedCount()})
	}
	for i := range list {
		list[i].Current = list[i].ID == current || list[i].ID == "records" && current == "record"
	}
	return list
}

// problem responds with a page that describes the problem.
func (c *console) problem(w http.ResponseWriter, s *session, status int, text string) {
	c.render(w, s, status, "problem", http.StatusText(status), text)
}

// failed responds to a request for which the store could not be used. The person does not
// see the error, which may contain addresses and names of the database.
func (c *console) failed(w http.ResponseWriter, r *http.Request, s *session, err error) {
	if errors.Is(err, onlyonce.ErrNotFound) {
		c.problem(w, s, http.StatusNotFound, "There is no such record. It may have expired or been deleted.")
		return
	}
	c.log.WarnContext(r.Context(), "console: the store could not be used", "error", err)
	text := "The store could not be used, or a record in it could not be read, for example because its key is missing. The server's log says why."
	if errors.Is(err, context.DeadlineExceeded) {
		text = "The store could not be read in time. Try again."
	}
	c.problem(w, s, http.StatusServiceUnavailable, text)
}
