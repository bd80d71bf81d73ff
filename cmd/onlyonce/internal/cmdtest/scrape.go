package cmdtest

import (
	"net/http"
	"net/http/httptest"
)

// Scrape returns what a handler of metrics answers.
func Scrape(h http.Handler) string {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}
