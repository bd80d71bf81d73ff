package cli

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"strings"
)

// JoinURL returns the URL of a path below url.
func JoinURL(url, path string) string {
	if path == "" {
		return url
	}
	return strings.TrimSuffix(url, "/") + "/" + strings.TrimPrefix(path, "/")
}

// TextOrFile returns the value of a flag, or the content of FILE if the value is
// @FILE. It returns nil for an empty value.
func TextOrFile(text string) ([]byte, error) {
	if text == "" {
		return nil, nil
	}
	name, ok := strings.CutPrefix(text, "@")
	if !ok {
		return []byte(text), nil
	}
	body, err := os.ReadFile(name)
	if err != nil {
		return nil, Usagef("%w", err)
	}
	return body, nil
}

// ParseHeader parses the values of a flag for headers: each is a line such as
// "Name: value", or @FILE for a file with any number of such lines.
func ParseHeader(given []string) (http.Header, error) {
	if len(given) == 0 {
		return nil, nil
	}
	h := http.Header{}
	for _, text := range given {
		lines, err := TextOrFile(text)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(lines)) {
			if strings.TrimSpace(line) == "" {
				continue
			}
			name, value, ok := strings.Cut(line, ":")
			if !ok {
				return nil, Usagef("a header has no colon: write --header 'Name: value'") // not quoted: it may be a secret
			}
			h.Add(strings.TrimSpace(name), strings.TrimSpace(value))
		}
	}
	return h, nil
}

// TrustOnly returns a client's configuration that trusts the certificates (PEM) in
// a file, and no others.
func TrustOnly(file string) (*tls.Config, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, Usagef("%w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, Usagef("%s contains no certificate (PEM)", file)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}, nil
}
