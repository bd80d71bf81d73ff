package serve

import (
	"io"
	"net/http"

	"github.com/onlyonce-go/onlyonce/services/items"
	"github.com/onlyonce-go/onlyonce/services/orders"
	"github.com/onlyonce-go/onlyonce/services/sandboxes"
)

// openAPIPath is where the descriptions of the APIs are.
const openAPIPath = "/openapi/"

// addOpenAPI serves the descriptions of the APIs to everyone: they are those of this version,
// and say nothing about what is stored.
func addOpenAPI(mux *http.ServeMux) {
	for name, text := range map[string]string{"items": items.OpenAPI(), "sandboxes": sandboxes.OpenAPI(), "orders": orders.OpenAPI()} {
		mux.HandleFunc("GET "+openAPIPath+name+".yaml", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/yaml") // RFC 9512
			w.Header().Set("X-Content-Type-Options", "nosniff")
			_, _ = io.WriteString(w, text) // a client that is gone needs none
		})
	}
}
