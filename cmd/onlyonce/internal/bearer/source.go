package bearer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/regular"
)

// maxDocument bounds a JWKS document, in bytes.
const maxDocument = 1 << 20

// File reads a JWKS document from a regular file.
func File(path string) Source {
	return func(context.Context) ([]byte, error) {
		file, err := regular.Open(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		return all(file)
	}
}

// URL reads a JWKS document from a server whose certificate roots have signed;
// nil: the system's authorities. It follows no redirect.
func URL(address string, roots *x509.CertPool) Source {
	transport := http.DefaultTransport.(*http.Transport).Clone() // the standard library's own
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	client := &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return func(ctx context.Context) ([]byte, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			return nil, err
		}
		r.Header.Set("Accept", "application/jwk-set+json, application/json")
		resp, err := client.Do(r)
		if err != nil {
			return nil, err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("%s returned %s: write the URL of the document itself", address, resp.Status)
		}
		return all(resp.Body)
	}
}

func all(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxDocument+1))
	if err == nil && len(text) > maxDocument {
		err = fmt.Errorf("the document has more than %d bytes", maxDocument)
	}
	return text, err
}
