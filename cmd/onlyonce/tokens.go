package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/onlyonce-go/onlyonce/services/sandboxes"
)

// readTokens reads the file, or none if path is empty.
func readTokens(path string) (sandboxes.Tokens, error) {
	if path == "" {
		return sandboxes.Tokens{}, nil
	}
	file, err := os.Open(path)
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

// anonymous is who calls without a token; no owner of one can be named so.
const anonymous = "(anonymous)"

type callerKey struct{}

// caller is who identify found to call.
func caller(r *http.Request) string {
	name, _ := r.Context().Value(callerKey{}).(string)
	return name
}

// identify tells h, an API that does not know tokens, who calls. A token that is
// there must be right, also when callers may be anonymous.
func identify(t sandboxes.Tokens, mayBeAnonymous bool, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, known := anonymous, mayBeAnonymous
		if given := r.Header.Values("Authorization"); len(given) > 0 {
			scheme, secret, _ := strings.Cut(given[0], " ")
			name, known = t.Owner(strings.TrimSpace(secret))
			known = known && len(given) == 1 && strings.EqualFold(scheme, "Bearer")
		}
		if known {
			h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, name)))
			return
		}
		w.Header().Set("WWW-Authenticate", "Bearer")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintln(w, `{"detail":"This needs a bearer token","error_code":"UNAUTHORIZED"}`)
	})
}
