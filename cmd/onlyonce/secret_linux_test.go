package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
	"github.com/onlyonce-go/onlyonce/internal/storeurl/modetest"
)

// fingerprints returns those in a store, by key.
func fingerprints(t *testing.T, path string) map[string]string {
	t.Helper()
	u, err := storeurl.Parse("sqlite:" + path)
	if err != nil {
		t.Fatal(err)
	}
	db, err := u.OpenDB(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	store, err := u.Open(t.Context(), db, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	found := make(map[string]string)
	for r, err := range store.List(context.Background(), onlyonce.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		found[r.ID.Operation+" "+r.ID.Key] = string(r.Fingerprint)
	}
	return found
}

func TestSecret_AProxyKeysFingerprintsWithASecretOfTheStore(t *testing.T) {
	needs.Time(t)
	t.Parallel()
	up := newUpstreamServer(t)
	dir := t.TempDir()
	start := func(name string, args ...string) *served {
		s := startProxy(t, up.URL, append([]string{"--single-tenant", "--store", "sqlite:" + filepath.Join(dir, name)}, args...)...)
		if got := s.send("k", "a"); got.status != 201 {
			t.Errorf("%s: %+v", name, got)
		}
		return s
	}
	one := start("one.db")
	one.logs(t, "a fingerprint secret was generated: keep it with the store")
	if got := modetest.Of(t, filepath.Join(dir, "one.db")); len(got) != 4 || got[3] != 0o600 {
		t.Errorf("modes %o", got)
	}
	start("two.db")
	given := filepath.Join(dir, "secret")
	cmdtest.WriteFile(t, given, strings.Repeat("s", 32)+"\n")
	start("three.db", "--fingerprint-secret-file", given)
	start("four.db", "--fingerprint-secret-file", given)
	prints := make(map[string]bool)
	for _, name := range []string{"one.db", "two.db", "three.db", "four.db"} {
		prints[fingerprints(t, filepath.Join(dir, name))["POST /things k"]] = true
	}
	if len(prints) != 3 {
		t.Errorf("%d different fingerprints of one request under three secrets", len(prints))
	}
	if again := start("one.db"); strings.Contains(again.log.String(), "a fingerprint secret was generated") {
		t.Error(again.log.String())
	}
	if up.runs() != 4 {
		t.Errorf("%d runs", up.runs())
	}
	if err := os.Remove(filepath.Join(dir, "one.db.secret")); err != nil {
		t.Fatal(err)
	}
	lost := startProxy(t, up.URL, "--single-tenant", "--store", "sqlite:"+filepath.Join(dir, "one.db"))
	lost.logs(t, "repeats of earlier requests are rejected as different ones")
	if got := lost.send("k", "a"); got.status != 422 || up.runs() != 4 {
		t.Errorf("a repeat after the secret was lost: %+v", got)
	}
}

func TestSecret_ServeKeysFingerprintsWithASecretOfTheStore(t *testing.T) {
	needs.Time(t)
	t.Parallel()
	all := make(map[string]bool)
	for range 2 {
		s := startServe(t, t.TempDir())
		s.post("k", "a")
		s.do("POST", "/v1/sandboxes", `{}`, "Idempotency-Key", "k", "X-Owner", "ada")
		s.do("POST", "/orders", `{"product_id":"prod-1","quantity":2}`, "Idempotency-Key", "k")
		prints := fingerprints(t, filepath.Join(s.data, "onlyonce.db"))
		if len(prints) < 3 {
			t.Errorf("%d records: %q", len(prints), prints)
		}
		for name, print := range prints {
			if strings.HasSuffix(name, " k") && all[name+print] {
				t.Errorf("the fingerprint of %s is the same in two stores", name)
			}
			all[name+print] = true
		}
	}
}

func TestSecret_AProxyTakesAKeyThatOtherUsersCanUseIfThatIsAccepted(t *testing.T) {
	t.Parallel()
	ca := cmdtest.NewAuthority(t)
	ca.Sign("a", false)
	if err := os.Chmod(ca.Path("a.key"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := startProxy(t, newUpstreamServer(t).URL, "--single-tenant", "--tls-cert", ca.Path("a.crt"), "--tls-key", ca.Path("a.key"), "--accept-risk", "file-mode")
	if got := ca.Shown(ca.Client(""), s.url); got != "a" {
		t.Error(got)
	}
}
