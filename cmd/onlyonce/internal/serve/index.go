package serve

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // for the page
	"encoding/base64"
	"html/template"
	"net/http"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/server"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/version"
	"github.com/onlyonce-go/onlyonce/console"
)

var (
	//go:embed index.html
	indexPage string
	//go:embed index.css
	indexStyle string
)

// docs is where the documentation is.
const docs = "https://github.com/onlyonce-go/onlyonce/tree/main/docs"

// index returns a page that lists the APIs and pages of the server.
func (a *app) index() (http.HandlerFunc, error) {
	t, err := template.New("index").Parse(indexPage)
	if err != nil {
		return nil, err
	}
	var page bytes.Buffer
	err = t.Execute(&page, map[string]any{
		"Style": template.CSS(indexStyle), "Version": version.Program(), "Docs": docs,
		"Items": itemsPath, "Sandboxes": sandboxesPath, "Orders": ordersPath, "OpenAPI": server.OpenAPIPath, "NeedsToken": !a.open,
		"Apart": a.hasAdmin, "Console": console.DefaultPath, "HasConsole": a.hasConsole,
	})
	hash := sha256.Sum256([]byte(indexStyle))
	policy := "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) + "'"
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", policy)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write(page.Bytes()) // a client that is gone needs none
	}, err
}
