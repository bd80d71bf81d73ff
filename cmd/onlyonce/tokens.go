package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/onlyonce-go/onlyonce/services/sandboxes"
)

// tokens are those of a file: whose they are, and, for an API that has no
// owners, whether there is such a one.
type tokens struct {
	owners sandboxes.Tokens
	hashes map[string]bool // SHA-256
}

// readTokens reads the file, or none if path is empty.
func readTokens(path string) (tokens, error) {
	if path == "" {
		return tokens{}, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return tokens{}, fmt.Errorf("read the tokens: %w", err)
	}
	owners, err := sandboxes.ParseTokens(bytes.NewReader(text))
	if err != nil {
		return tokens{}, fmt.Errorf("%s: %w", path, err)
	}
	t := tokens{owners: owners, hashes: make(map[string]bool)}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) == 2 && words[0][0] != '#' {
			if hash, err := hex.DecodeString(words[1]); err == nil {
				t.hashes[string(hash)] = true
			}
		}
	}
	return t, nil
}

// require lets only callers with a token reach h.
func (t tokens) require(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given := r.Header.Values("Authorization")
		if len(given) == 1 {
			scheme, secret, _ := strings.Cut(given[0], " ")
			hash := sha256.Sum256([]byte(strings.TrimSpace(secret)))
			if strings.EqualFold(scheme, "Bearer") && t.hashes[string(hash[:])] {
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
