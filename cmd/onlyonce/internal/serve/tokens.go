package serve

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/onlyonce-go/onlyonce/internal/storeurl/private"
	"github.com/onlyonce-go/onlyonce/services/sandboxes"
)

// readTokens reads the file, or none if path is empty.
func readTokens(path string, acceptRisks []string) (sandboxes.Tokens, error) {
	if path == "" {
		return sandboxes.Tokens{}, nil
	}
	file, err := private.OpenTokens(path, acceptRisks)
	if err != nil {
		return sandboxes.Tokens{}, fmt.Errorf("read the tokens: %w", err)
	}
	defer file.Close()
	t, err := sandboxes.ParseTokens(file)
	if err != nil {
		return sandboxes.Tokens{}, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// anonymous is the name of a caller without a token, and of every caller while there are no
// tokens, so that keys stay valid when tokens are introduced. No owner of a token can have it.
const anonymous = "(anonymous)"

type callerKey struct{}

// caller returns the name that identify found for the caller.
func caller(r *http.Request) string {
	name, _ := r.Context().Value(callerKey{}).(string)
	return name
}

// identify finds the caller of a request for h, an API that does not know tokens. A
// token must be valid even if anonymous callers are allowed.
func identify(t sandboxes.Tokens, mayBeAnonymous bool, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, known := anonymous, mayBeAnonymous
		if len(r.Header.Values("Authorization")) > 0 {
			name, known = bearerOf(r, t)
		}
		if known {
			h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, name)))
			return
		}
		w.Header().Set("WWW-Authenticate", "Bearer")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintln(w, `{"detail":"A bearer token is required","error_code":"UNAUTHORIZED"}`)
	})
}

// bearerOf returns the owner of the request's bearer token.
func bearerOf(r *http.Request, t sandboxes.Tokens) (owner string, known bool) {
	given := r.Header.Values("Authorization")
	if len(given) != 1 {
		return "", false
	}
	scheme, secret, _ := strings.Cut(given[0], " ")
	owner, known = t.Owner(strings.TrimSpace(secret))
	return owner, known && strings.EqualFold(scheme, "Bearer")
}
