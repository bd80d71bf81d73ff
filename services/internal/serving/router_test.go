package serving

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestRouter_RefusesInTheFormOfTheAPI(t *testing.T) {
	ok := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(r.PathValue("id"))) })
	rt := NewRouter(func(w http.ResponseWriter, _ *http.Request, why error) {
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte(why.Error()))
	}, map[string]Methods{
		"/things":      {"POST": ok, "GET": ok},
		"/things/{id}": {"GET": ok, "DELETE": http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("boom") })},
	})
	for _, test := range []struct{ method, target, origin, body, allow string }{
		{"GET", "/things/7", "", "7", ""},
		{"HEAD", "/things/7", "", "", ""},
		{"GET", "/other", "", ErrNotFound.Error(), ""},
		{"GET", "/things/", "", ErrNotFound.Error(), ""},
		{"GET", "//things", "", ErrNotFound.Error(), ""},
		{"GET", "/x/../things", "", ErrNotFound.Error(), ""},
		{"PUT", "/things", "", ErrMethodNotAllowed.Error(), "GET, HEAD, POST"},
		{"POST", "/things/7", "", ErrMethodNotAllowed.Error(), "DELETE, GET, HEAD"},
		{"POST", "/things", "https://evil.example", errCrossOrigin.Why, ""},
		{"GET", "/things", "https://evil.example", "", ""},
		{"DELETE", "/things/7", "", "panic: boom", ""},
	} {
		r := httptest.NewRequest(test.method, "http://api.example"+test.target, http.NoBody)
		if test.origin != "" {
			r.Header.Set("Origin", test.origin)
		}
		w := httptest.NewRecorder()
		rt.ServeHTTP(w, r)
		if !strings.HasPrefix(w.Body.String(), test.body) || w.Header().Get("Allow") != test.allow {
			t.Errorf("%s %s: %q, Allow %q; want %q, %q", test.method, test.target, w.Body, w.Header().Get("Allow"), test.body, test.allow)
		}
	}
}
