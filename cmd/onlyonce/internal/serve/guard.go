package serve

import (
	"net/http"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/server"
)

// forbid rejects a request with 403 in the form of the API that it is for. why says what to do
// instead.
func (a *app) forbid(why string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch apiOf(r) {
		case itemsPath:
			a.items.Forbid(w, r, why)
		case sandboxesPath:
			a.sandboxes.Forbid(w, r, why)
		case ordersPath:
			a.orders.Forbid(w, r, why)
		default:
			http.Error(w, why, http.StatusForbidden)
		}
	}
}

// forOperators lets in clients on this machine, unless they are proxies for
// others or pages in a browser, and clients with a token.
func (a *app) forOperators(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, known := bearerOf(r, a.tokens); !server.IsLocal(r, a.hosts) && !known {
			http.Error(w, "only callers on the same machine, or with a token, can read this", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}
