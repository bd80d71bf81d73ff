package conform_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/conform"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// wrapped is a shop behind httponce.
func wrapped(guard onlyonce.Config, cfg httponce.Config) http.Handler {
	cfg.Tenant = func(r *http.Request) string { return r.Header.Get("X-Tenant") }
	cfg.Operation = func(r *http.Request) string { return r.URL.Path }
	return httponce.Wrap(onlyonce.New(memstore.New(memstore.Config{}), guard), newShop(), cfg)
}

func TestWrap_WhatIsWrappedPassesEveryRow(t *testing.T) {
	for name, c := range map[string]struct {
		guard       onlyonce.Config
		cfg         httponce.Config
		unsupported []string
	}{
		"as it comes":         {onlyonce.Config{}, httponce.Config{}, []string{"missing", "link"}},
		"with all it can say": {onlyonce.Config{}, httponce.Config{Required: true, DocsURL: "/docs"}, []string{}},
		"waiting":             {onlyonce.Config{Wait: 5e9}, httponce.Config{Required: true, DocsURL: "/docs"}, []string{}},
		"strict":              {onlyonce.Config{}, httponce.Config{KeyFormat: httponce.KeyFormat{Syntax: httponce.StringOnly}, DocsURL: "/docs"}, []string{"missing", "forms"}},
		"any characters":      {onlyonce.Config{}, httponce.Config{Required: true, KeyFormat: httponce.KeyFormat{Chars: " \"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-0123456789_"}, DocsURL: "/docs"}, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := serve(t, wrapped(c.guard, c.cfg))
			wantRows(t, run(t, target, quick), []string{}, c.unsupported)
		})
	}
}

// An API is tested from its own tests: t is the *testing.T.
func ExampleTest() {
	server := httptest.NewServer(wrapped(onlyonce.Config{}, httponce.Config{}))
	defer server.Close()

	t := &printing{} // stands for the *testing.T
	conform.Test(t, conform.Target{
		URL:    server.URL + "/orders",
		Header: http.Header{"X-Tenant": {"acme"}},
		Body:   []byte(`{"note": "a lamp"}`),
		Fresh:  "/note",
	}, conform.Config{Only: []string{"replay", "mismatch", "tenants"}})
	// Output:
	// tenants: not supported: There are no credentials of a second tenant (Other, --other-header).
}

func ExampleRun() {
	server := httptest.NewServer(newShop()) // knows no keys
	defer server.Close()

	report, err := conform.Run(context.Background(), conform.Target{
		URL:   server.URL + "/orders",
		Body:  []byte(`{"note": "a lamp"}`),
		Fresh: "/note",
	}, conform.Config{Only: []string{"replay", "mismatch", "missing"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, row := range report.Rows {
		fmt.Printf("%s: %s\n", row.ID, row.Verdict)
	}
	// Output:
	// replay: fail
	// mismatch: fail
	// missing: not supported
}

// A printing TB prints the lines that a test would log.
type printing struct{}

func (*printing) Helper()                           {}
func (*printing) Context() context.Context          { return context.Background() }
func (*printing) Log(args ...any)                   { fmt.Println(args...) }
func (*printing) Errorf(format string, args ...any) { fmt.Printf("failed: "+format+"\n", args...) }
