package main

import (
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

// requireToken lets only callers with a token reach h, an API that has no owners
// of its own.
func requireToken(t sandboxes.Tokens, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if given := r.Header.Values("Authorization"); len(given) == 1 {
			scheme, secret, _ := strings.Cut(given[0], " ")
			if _, known := t.Owner(strings.TrimSpace(secret)); known && strings.EqualFold(scheme, "Bearer") {
				h.ServeHTTP(w, r)
				return
			}
		}
		w.Header().Set("WWW-Authenticate", "Bearer")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintln(w, `{"detail":"This needs a bearer token","error_code":"UNAUTHORIZED"}`)
	})
}
