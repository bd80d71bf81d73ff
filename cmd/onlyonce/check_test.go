package main

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/check"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
	"github.com/onlyonce-go/onlyonce/conform"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
	"github.com/rogpeppe/go-internal/testscript"
)

// counter is a service that counts, and knows nothing of keys.
func counter() http.Handler {
	mux, n := http.NewServeMux(), new(atomic.Int64)
	mux.HandleFunc("POST /{operation}", func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Note string }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			http.Error(w, "this is no note", http.StatusBadRequest)
			return
		}
		made := n.Add(1)
		time.Sleep(60 * time.Millisecond) // so that another can overtake it, on a busy machine, too
		w.Header().Set("Content-Type", "application/json")
		http.SetCookie(w, &http.Cookie{Name: "session", Value: fmt.Sprint("s", made)})
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"n":%d}`, made)
	})
	mux.HandleFunc("GET /n", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, `{"n":%d}`, n.Load()) })
	return mux
}

func serveCounter(t testing.TB, h http.Handler) (url string) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// checked runs "onlyonce check --format json".
func checked(t *testing.T, args ...string) (doc check.Document, exit int) {
	t.Helper()
	var out, log bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "onlyonce", append([]string{"check", "--yes-it-may-write", "--format", "json"}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &log
	err := cmd.Run()
	if bad := new(exec.ExitError); errors.As(err, &bad) {
		exit = bad.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(&out)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&doc); err != nil {
		t.Fatalf("exit code %d: %v\n%s", exit, err, log.String())
	}
	return doc, exit
}

// wantRows fails unless all rows are there, and just these fail and are not
// supported.
func wantRows(t *testing.T, doc check.Document, failed, unsupported []string) {
	t.Helper()
	got := map[string][]string{"fail": {}, "not_supported": {}}
	for _, row := range doc.Rows {
		got[row.Verdict] = append(got[row.Verdict], row.ID)
		if want := row.Verdict == "not_supported" && !slices.Contains(unsupported, row.ID); want || row.Verdict == "fail" && !slices.Contains(failed, row.ID) {
			t.Logf("%s: %s\n%+v", row.ID, row.Detail, row.Exchanges)
		}
	}
	if !slices.Equal(got["fail"], failed) || !slices.Equal(got["not_supported"], unsupported) {
		t.Errorf("%q fail, and %q are not supported", got["fail"], got["not_supported"])
	}
	if len(doc.Rows) != len(conform.Rows()) || doc.Passed+doc.Failed+doc.NotSupported != len(doc.Rows) || doc.Error != nil {
		t.Errorf("%d rows, %d pass, %d fail, %d are not supported; error %v", len(doc.Rows), doc.Passed, doc.Failed, doc.NotSupported, doc.Error)
	}
}

func TestCheck_OurServicesPassEveryRowOfCheck(t *testing.T) {
	t.Parallel()
	s := startServe(t, t.TempDir(), "--tokens", writeTokens(t, "alice", "bob"))
	credentials := []string{"--header", "Authorization: Bearer alice-secret", "--other-header", "Authorization: Bearer bob-secret"}
	for _, c := range []struct {
		name        string
		args        []string
		unsupported []string // rows that the API's own specification excludes or does not have
	}{
		{
			"items",
			[]string{"--path", "/api/v1/items", "--fresh", "/title", "--body", `{"sku":"S-1","title":"Lamp","status":"active"}`, "--count-url", "/api/v1/items?limit=200", "--count", "/items"},
			[]string{"missing", "forms", "problem", "link", "cookie", "operation"},
		},
		{
			"sandboxes",
			[]string{"--path", "/v1/sandboxes", "--fresh", "/ttl", "--body", `{"ttl":3600}`, "--count-url", "/v1/sandboxes?limit=200", "--count", "/items"},
			[]string{"missing", "forms", "problem", "link", "cookie", "operation"},
		},
		{
			"orders",
			[]string{
				"--path", "/orders", "--fresh", "/external_ref", "--count-url", "/orders?limit=200", "--count", "/items",
				"--body", `{"items":[{"product_id":"prod-1","quantity":2,"unit_price":"19.90"}],"external_ref":"PO"}`,
			},
			[]string{"link", "cookie", "operation"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			doc, exit := checked(t, slices.Concat([]string{s.url}, c.args, credentials)...)
			wantRows(t, doc, []string{}, c.unsupported)
			if exit != 0 {
				t.Errorf("exit code %d", exit)
			}
			if text, _ := json.Marshal(doc); bytes.Contains(text, []byte("-secret")) {
				t.Errorf("a token is in the report:\n%s", text)
			}
		})
	}
}

func TestCheck_FailsForAServiceThatKnowsNoKeys(t *testing.T) {
	t.Parallel()
	doc, exit := checked(t, serveCounter(t, counter())+"/n", "--body", `{"note":"{{fresh}}"}`, "--count-url", "/n", "--count", "/n")
	if exit != 1 {
		t.Errorf("exit code %d", exit)
	}
	wantRows(t, doc,
		[]string{"replay", "mismatch", "burst", "in-flight", "disconnect"},
		[]string{
			"cut-off", "error", "missing", "empty", "malformed", "repeated", "over-long", "forms", "case", "problem", "link",
			"marker", "cookie", "tenants", "operation", "safe-method",
		})
}

func TestCheck_PassesForAServiceThatIsWrapped(t *testing.T) {
	t.Parallel()
	guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{})
	h := httponce.Wrap(guard, counter(), httponce.Config{Tenant: httponce.SingleTenant})
	doc, exit := checked(t, serveCounter(t, h)+"/n", "--body", `{"note":"{{fresh}}"}`, "--count-url", "/n", "--count", "/n", "--other-path", "/m")
	if exit != 0 {
		t.Errorf("exit code %d", exit)
	}
	wantRows(t, doc, []string{}, []string{"missing", "link", "tenants"})
}

func TestCheck_PassesForAServiceBehindTheProxy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args, unsupported []string
	}{
		"a key is optional":      {nil, []string{"missing", "link"}},
		"a key is required":      {[]string{"--require-key"}, []string{"link"}},
		"a repeat waits":         {[]string{"--wait", "5s", "--fingerprint", "json"}, []string{"missing", "link"}},
		"an unknown one is held": {[]string{"--unknown", "hold"}, []string{"missing", "link"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startProxy(t, serveCounter(t, counter()), append(c.args, "--tenant-header", "X-Tenant-ID")...)
			doc, exit := checked(t, p.url+"/n", "--body", `{"note":"{{fresh}}"}`, "--count-url", "/n", "--count", "/n", "--other-path", "/m",
				"--header", "X-Tenant-ID: acme-of-a", "--other-header", "X-Tenant-ID: acme-of-b")
			wantRows(t, doc, []string{}, c.unsupported)
			if exit != 0 {
				t.Errorf("exit code %d", exit)
			}
		})
	}
}

func TestCheck_TrustsTheCertificatesOfAFileAndNoOthers(t *testing.T) {
	t.Parallel()
	s := httptest.NewTLSServer(counter())
	t.Cleanup(s.Close)
	file := filepath.Join(t.TempDir(), "ca.pem")
	cmdtest.WriteFile(t, file, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	args := []string{s.URL + "/n", "--body", `{"note":"{{fresh}}"}`, "--only", "missing"}
	if doc, exit := checked(t, append(args, "--cacert", file)...); exit != 0 || doc.NotSupported != 1 {
		t.Errorf("exit code %d, %+v", exit, doc)
	}
	if doc, exit := checked(t, args...); exit != 2 || doc.Error == nil || !strings.Contains(*doc.Error, "certificate") {
		t.Errorf("exit code %d, %+v", exit, doc)
	}
}

// The scripts have a bare service at $BARE and a wrapped one at $WRAPPED.
func TestCheck_OnTheCommandLine(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/check",
		Setup: func(e *testscript.Env) error {
			tb := e.T().(testing.TB)
			var asked atomic.Int64
			bare := counter()
			e.Setenv("BARE", serveCounter(tb, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				bare.ServeHTTP(w, r)
			})))
			e.Values["asked"] = &asked
			guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{})
			e.Setenv("WRAPPED", serveCounter(tb, httponce.Wrap(guard, counter(), httponce.Config{Tenant: httponce.SingleTenant})))
			e.Setenv("GORACE", "atexit_sleep_ms=0")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"untouched": func(ts *testscript.TestScript, neg bool, _ []string) { // the bare service was asked nothing
				if n := ts.Value("asked").(*atomic.Int64).Load(); (n == 0) == neg {
					ts.Fatalf("%d requests were sent", n)
				}
			},
		},
	})
}

func TestCheck_TheGuideListsEveryRowWithItsSectionAndRemedy(t *testing.T) {
	guide, err := os.ReadFile("../../docs/check.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("never more than %d", conform.Config{}.MaxRequests()); !strings.Contains(string(guide), want) {
		t.Errorf("docs/check.md does not say %q", want)
	}
	for _, row := range conform.Rows() {
		section := row.Section
		if section == "" {
			section = "–"
		}
		line := fmt.Sprintf("| `%s` | %s | %s | %s |", row.ID, row.Title, section, row.Advice)
		if !strings.Contains(string(guide), line+"\n") {
			t.Errorf("docs/check.md has no line %s", line)
		}
	}
}
