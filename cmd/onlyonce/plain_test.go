package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
)

// onlyonceWith runs a command line, and returns all that it prints.
func onlyonceWith(env []string, args ...string) string {
	cmd := exec.Command("onlyonce", args...)
	cmd.Env = append(os.Environ(), env...)
	out, _ := cmd.CombinedOutput() // that it fails is no fault here
	return string(out)
}

func TestPlainText_NothingThatAClientSentReachesTheTerminalAsACommand(t *testing.T) {
	needs.Time(t)
	t.Parallel()
	const bad = "\u009b31m\u0085\x7f\u202e\u2066\u200e\u061c\ufeffz"
	url := "sqlite:" + filepath.Join(t.TempDir(), "a.db")
	u, err := storeurl.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	store, err := u.OpenMigrated(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	r, err := store.Claim(ctx, onlyonce.Claim{ID: onlyonce.ID{Tenant: "t" + bad, Operation: "o" + bad, Key: "k"}, Owner: strings.Repeat("o", 16), SkipFingerprint: true, Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	result := onlyonce.Result{Status: 201, Header: map[string][]string{"X-" + bad: {bad}}, Body: []byte(`{"a":"` + bad + `"}`), Ref: bad}
	hold := onlyonce.Hold{ID: r.ID, Owner: r.Owner, Fence: r.Fence}
	if err := store.Settle(ctx, hold, onlyonce.Settlement{State: onlyonce.StateCompleted, Result: result, Keep: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"records", "ls", url},
		{"records", "ls", url, "--json"},
		{"records", "show", url, "--key", "k"},
		{"records", "show", url, "--key", "k", "--json"},
		{"records", "show", url, bad},
		{"doctor", "sqlite:/no" + bad},
		{bad},
		{"records", "ls", url, "--state", bad},
		{"proxy", "--config", "/no" + bad},
	} {
		out := onlyonceWith(nil, args...)
		if !strings.Contains(out, "z") || strings.ContainsFunc(out, func(r rune) bool {
			return unicode.Is(unicode.Cf, r) || unicode.IsControl(r) && r != '\n' && r != '\t'
		}) {
			t.Errorf("%q prints %q", args, out)
		}
	}
}

func TestPlainText_NoErrorShowsThePasswordOfAStore(t *testing.T) {
	needs.Time(t)
	t.Parallel()
	dir := t.TempDir()
	for n, url := range []string{
		"postgres://u:hunter2@127.0.0.1:1/d", "postgres://u:hunter2@127.0.0.1:1", "postgres://u:hun/hunter2@127.0.0.1:1/d", "postgres://u:hunter2%zz@127.0.0.1:1/d", "postgres://u:hun hunter2@127.0.0.1:1/d",
		"postgres://127.0.0.1:1/d?user=u&password=hunter2", "postgres://u:hunter2@127.0.0.1:1/d?sslmode=no", "postgres://u:hunter2@127.0.0.1:99999/d",
		"host=db password=hun:hunter2", "password='hunter2 x' host=db:1", "host=db password=hunter2",
		"mysql://u:hunter2@127.0.0.1:1/d", "mysql://u:hunter2@127.0.0.1:1", "mysql://u:hunter2@127.0.0.1:x/d", "mysql://u:hunter2@127.0.0.1:1/d?password=hunter2",
		"u:hunter2@tcp(127.0.0.1:1)/d", "redis://u:hunter2@h/1",
		"nats://u:hunter2@127.0.0.1:1/shop", "nats://hunter2@127.0.0.1:1", "nats://u:hun/hunter2@127.0.0.1:1", "tls://hunter2@127.0.0.1:1/a.b", "nats://127.0.0.1:1?system_user=u&system_password=hunter2", "nats://hunter2%zz@127.0.0.1:1", "etcd://u:hun/hunter2@127.0.0.1:1", "etcds://u:hunter2@127.0.0.1:1/a?prefix=b", "etcd://u:hunter2%zz@127.0.0.1:1", "dynamodb://u:hunter2@eu-west-1/shop", "dynamodb://u:hun/hunter2@eu-west-1", "'postgres://u:hunter2@127.0.0.1:1/d'",
	} {
		path := filepath.Join(dir, "p.yaml")
		files := []string{
			"store: {url: \"" + url + "\"}\ntenant: {single: true}\nupstreams: [{url: \"http://127.0.0.1:1\"}]\n",
			"store: \"" + url + "\"\n", "store: {\"" + url + "\": x}\n", "store: {url: [\"" + url + "\"]}\n", "store: " + url + "\n" + url + "\n", url,
		}
		env := "ONLYONCE_STORE=" + url
		runs := map[string]string{
			"migrate":     onlyonceWith(nil, "migrate", url),
			"doctor":      onlyonceWith(nil, "doctor", url),
			"records":     onlyonceWith(nil, "records", "ls", url),
			"twice":       onlyonceWith(nil, "records", "ls", url, url),
			"unknown":     onlyonceWith(nil, url),
			"serve":       onlyonceWith(nil, "serve", "--listen", "127.0.0.1:0", "--data", dir, "--store", url),
			"environment": onlyonceWith([]string{env}, "serve", "--listen", "127.0.0.1:0", "--data", dir),
			"proxy":       onlyonceWith([]string{env}, "proxy", "--listen", "127.0.0.1:0", "--upstream", "http://127.0.0.1:1", "--single-tenant"),
			"relay":       onlyonceWith([]string{env}, "relay", "--broker", "nats://u:hunter2@127.0.0.1:1"),
		}
		for i, text := range files {
			cmdtest.WriteFile(t, path, text)
			runs["file "+text] = onlyonceWith(nil, "proxy", "--config", path, "--listen", "127.0.0.1:0")
			if i > 0 && n > 3 {
				break
			}
		}
		for name, out := range runs {
			if strings.Contains(out, "hunter") || out == "" {
				t.Errorf("%s with %s prints\n%s", name, url, out)
			}
		}
	}
}
