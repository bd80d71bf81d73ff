package main

import (
	"database/sql"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
	"github.com/onlyonce-go/onlyonce/internal/needs"
)

// The proxies are on one store at the same time, as during a rollout.
func TestEncryption_ProxiesEncryptAndPeopleReadAndResolve(t *testing.T) {
	needs.Time(t)
	t.Parallel()
	up := newUpstreamServer(t)
	dir := t.TempDir()
	store := "sqlite:" + filepath.Join(dir, "records.db")
	lineOf := func(id, digit string) string { return id + " " + strings.Repeat(digit, 64) + "\n" }
	keys := func(name, text string) string {
		path := filepath.Join(dir, name)
		cmdtest.WriteFile(t, path, text)
		return path
	}
	old := keys("old", lineOf("old", "1"))
	both := keys("both", "current new\n"+lineOf("old", "1")+lineOf("new", "2"))
	onlyNew := keys("new", lineOf("new", "2"))
	proxy := func(args ...string) *served {
		t.Helper()
		return startProxy(t, up.URL, append([]string{"--single-tenant", "--store", store}, args...)...)
	}

	before := proxy()
	const plaintext = "run 1 of before"
	before.send("k0", "before")
	strict := proxy("--encryption-keys-file", old)
	if got := strict.send("k0", "before"); got.status != http.StatusServiceUnavailable {
		t.Errorf("with keys, a repeat from before gets %+v", got)
	}
	first := proxy("--encryption-keys-file", old, "--accept-plaintext")
	if got := first.send("k0", "before"); got.body != plaintext {
		t.Errorf("a repeat from before gets %+v", got)
	}
	const secret = "run 2 of a"
	if got := first.send("k", "a"); got.status != http.StatusCreated || got.body != secret {
		t.Fatalf("the first request gets %+v", got)
	}
	if got := before.send("k", "a"); got.status != http.StatusServiceUnavailable || strings.Contains(got.body, "ooe") {
		t.Errorf("a proxy without keys responds with %+v", got)
	}
	onlyonce := func(want string, args ...string) {
		t.Helper()
		if out := onlyonceWith(nil, args...); !strings.Contains(out, want) {
			t.Errorf("%v prints\n%s", args, out)
		}
	}
	onlyonce("encrypted: pass --encryption-keys-file", "records", "show", store, "--key", "k")
	onlyonce(secret, "records", "show", store, "--key", "k", "--encryption-keys-file", old)
	onlyonce("the records of this store are encrypted", "records", "resolve", store, "--key", "k", "--completed", "--body", "x", "--reason", "r", "--yes")
	onlyonce("encrypted: 2", "records", "rekey", store, "--encryption-keys-file", both, "--accept-plaintext")
	onlyonce("already with the current key: 2", "records", "rekey", store, "--encryption-keys-file", onlyNew)

	second := proxy("--encryption-keys-file", onlyNew)
	for key, want := range map[string]string{"k0": plaintext, "k": secret} {
		if got := second.send(key, want[len("run 1 of "):]); got.body != want || got.header.Get("X-Run") == "" {
			t.Errorf("%s: a repeat gets %+v", key, got)
		}
	}
	onlyonce("resolved: 1", "records", "resolve", store, "--key", "k", "--completed", "--status", "202", "--body", "decided", "--reason", "r", "--yes", "--encryption-keys-file", onlyNew)
	if got := second.send("k", "a"); got.status != http.StatusAccepted || got.body != "decided" {
		t.Errorf("after the decision, a repeat gets %+v", got)
	}
	if up.runs() != 2 {
		t.Errorf("the upstream ran %d times", up.runs())
	}
}

func TestEncryption_ServeEncryptsTheRecordsOfItsAPIs(t *testing.T) {
	needs.Time(t)
	t.Parallel()
	dir := t.TempDir()
	data, store := filepath.Join(dir, "data"), "sqlite:"+filepath.Join(dir, "data", "onlyonce.db")
	keys, newer := filepath.Join(dir, "keys"), filepath.Join(dir, "newer")
	line := "old " + strings.Repeat("1", 64) + "\n"
	cmdtest.WriteFile(t, keys, line)
	cmdtest.WriteFile(t, newer, "current new\n"+line+"new "+strings.Repeat("2", 64)+"\n")

	type sent struct{ path, body string }
	commands := []sent{{"/api/v1/items", `{"sku":"S-1","title":"Lamp","status":"active"}`}, {"/v1/sandboxes", `{"ttl":3600}`}, {"/orders", oneOrder}}
	first := make(map[sent]answer)
	with := func(then func(s *served, c sent, got answer), args ...string) {
		s := startServe(t, data, args...)
		for _, c := range commands {
			then(s, c, s.do("POST", c.path, c.body, "Idempotency-Key", "k", "X-Owner", "ada"))
		}
		s.signal(os.Interrupt)
		s.wait()
	}
	with(func(s *served, c sent, got answer) {
		if first[c] = got; got.status != http.StatusCreated {
			t.Errorf("%s: %+v", c.path, got)
		}
	}, "--encryption-keys-file", keys)
	for file, shows := range map[string]bool{"": false, keys: true} {
		out := onlyonceWith(nil, "records", "export", store, "--encryption-keys-file="+file)
		for c, got := range first {
			if body, _ := json.Marshal(got.body); strings.Contains(out, string(body)) != shows {
				t.Errorf("%s: with the keys in %q, export prints\n%s", c.path, file, out)
			}
		}
	}
	with(func(s *served, c sent, got answer) {
		if got.status != http.StatusServiceUnavailable {
			t.Errorf("%s: without keys, a repeat gets %+v", c.path, got)
		}
	})
	if out := onlyonceWith(nil, "records", "rekey", store, "--encryption-keys-file", newer); !strings.Contains(out, "encrypted: ") {
		t.Errorf("rekey prints\n%s", out)
	}
	with(func(s *served, c sent, got answer) {
		if got.body != first[c].body {
			t.Errorf("%s: a repeat gets %+v, the first request got %+v", c.path, got, first[c])
		}
	}, "--encryption-keys-file", newer)
}

// A consumer that has the keys can't use a record that is stored in clear, and the broker would
// deliver the event again and again.
func TestEncryption_ADecisionAboutAPoisonedEventIsEncryptedAsItsConsumerDoes(t *testing.T) {
	needs.Time(t)
	t.Parallel()
	data := t.TempDir()
	store, keys := "sqlite:"+filepath.Join(data, "onlyonce.db"), filepath.Join(data, "keys")
	cmdtest.WriteFile(t, keys, "a "+strings.Repeat("1", 64)+"\n")
	s := startServe(t, data, "--encryption-keys-file", keys)
	if got := s.do("POST", "/orders", oneOrder, "Idempotency-Key", "k", "X-Tenant-ID", "acme"); got.status != http.StatusCreated {
		t.Fatalf("an order gets %+v", got)
	}
	s.signal(os.Interrupt)
	s.wait()
	db, err := sql.Open("sqlite", filepath.Join(data, "onlyonce.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, id := range []string{"retried", "discarded"} {
		if _, err := db.Exec(`INSERT INTO orders_poison VALUES (?, 'acme', ?, 'no room', 1)`, id, []byte(`{"order_id":"ord_01JD71T001081G81860W40J2QZ"}`)); err != nil {
			t.Fatal(err)
		}
	}
	for verb, id := range map[string]string{"retry": "retried", "discard": "discarded"} {
		if out := onlyonceWith(nil, "poison", verb, store, id); !strings.Contains(out, "the records of this store are encrypted") {
			t.Errorf("without keys, poison %s prints\n%s", verb, out)
		}
		if out := onlyonceWith(nil, "poison", verb, store, id, "--encryption-keys-file", keys); !strings.Contains(out, "done: 1") {
			t.Errorf("poison %s prints\n%s", verb, out)
		}
		if out := onlyonceWith(nil, "records", "show", store, "--tenant", "acme", "--operation", "orders-shipping", "--key", id, "--encryption-keys-file", keys); !strings.Contains(out, "attempt") {
			t.Errorf("after poison %s, the consumer can't use the record:\n%s", verb, out)
		}
	}
}

func TestEncryption_MistakesAreExplained(t *testing.T) {
	needs.Time(t)
	t.Parallel()
	dir := t.TempDir()
	store := "sqlite:" + filepath.Join(dir, "records.db")
	bad := filepath.Join(dir, "bad")
	cmdtest.WriteFile(t, bad, "k 123\n")
	for _, c := range []struct {
		want string
		args []string
	}{
		{"--encryption-keys-file (ONLYONCE_ENCRYPTION_KEYS_FILE)", []string{"proxy", "--upstream", "http://127.0.0.1:1", "--single-tenant", "--check-config", "--store", store, "--encryption-keys-file", bad}},
		{"--accept-plaintext has no effect", []string{"proxy", "--upstream", "http://127.0.0.1:1", "--single-tenant", "--check-config", "--store", store, "--accept-plaintext"}},
		{"--encryption-keys-file (ONLYONCE_ENCRYPTION_KEYS_FILE)", []string{"serve", "--listen", "127.0.0.1:0", "--data", dir, "--encryption-keys-file", bad}},
		{"--accept-plaintext has no effect", []string{"serve", "--listen", "127.0.0.1:0", "--data", dir, "--accept-plaintext"}},
		{"no key of 32 bytes", []string{"records", "ls", store, "--encryption-keys-file", bad}},
		{"--encryption-keys-file is missing", []string{"records", "rekey", store}},
	} {
		if out := onlyonceWith(nil, c.args...); !strings.Contains(out, c.want) {
			t.Errorf("%v prints\n%s", c.args, out)
		}
	}
}
