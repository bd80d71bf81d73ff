package server

import (
	"io"
	"net/http"
)

// OpenAPIPath is where the descriptions of APIs are.
const OpenAPIPath = "/openapi/"

// HandleOpenAPI adds the description of an API in OpenAPI to mux. It is served to everyone: it is
// that of this version, and says nothing about the store.
func HandleOpenAPI(mux *http.ServeMux, api, description string) {
	mux.HandleFunc("GET "+OpenAPIPath+api+".yaml", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/yaml") // RFC 9512
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = io.WriteString(w, description) // a client that is gone needs none
	})
}
