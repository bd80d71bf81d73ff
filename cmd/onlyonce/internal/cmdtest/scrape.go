package cmdtest

import (
	"net/http"
	"net/http/httptest"
)

// Scrape returns the page that a handler of metrics serves.
func Scrape(h http.Handler) string {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}
