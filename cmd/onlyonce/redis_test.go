package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
)

// command runs a command line and returns its output.
func command(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out strings.Builder
	cmd := rootCommand()
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// steps returns a function that runs a command line. It checks that the command fails and
// prints as it should, and shows no password.
func steps(t *testing.T) func(fails, prints string, args ...string) {
	return func(fails, prints string, args ...string) {
		t.Helper()
		out, err := command(t, args...)
		if err == nil && fails != "" || err != nil && (fails == "" || !strings.Contains(err.Error(), fails)) || !strings.Contains(out, prints) {
			t.Errorf("%v: %v, and printed\n%s", args, err, out)
		}
		if strings.Contains(out, "s3cret") || err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%v shows the password: %v, and printed\n%s", args, err, out)
		}
	}
}

// onlyRecords checks that the commands that need tables say that a store has none.
func onlyRecords(t *testing.T, step func(fails, prints string, args ...string), name, u string) {
	t.Helper()
	instead := "a store in " + name + " keeps records only; it has no tables, no transactions and no outbox: name a store in SQLite, PostgreSQL or MySQL"
	step(instead, "", "outbox", "ls", u)
	step(instead, "", "outbox", "requeue", u, "--all", "--reason", "ticket 4711")
	step(instead, "", "poison", "ls", u)
	step(instead, "", "relay", "--store", u, "--broker", "nats://127.0.0.1:1")
	step(instead, "", "serve", "--store", u, "--listen", "127.0.0.1:0", "--data", t.TempDir())
	step("a store in "+name+" has no SQL to print", "", "migrate", "--print", u)
}

// checkRecords runs a command in the store of a URL, and checks that the commands on records
// find it and delete it.
func checkRecords(t *testing.T, step func(fails, prints string, args ...string), raw string) {
	t.Helper()
	u, err := storeurl.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	store, err := u.OpenRecords(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	const key = "order-17"
	charge := onlyonce.Request{ID: onlyonce.ID{Tenant: "acme", Operation: "charge", Key: key}, Fingerprint: onlyonce.Fingerprint([]byte(key))}
	if _, err := onlyonce.Do(t.Context(), onlyonce.New(store, onlyonce.Config{Keep: time.Hour}), charge, func(context.Context) (string, error) { return "made", nil }); err != nil {
		t.Fatal(err)
	}
	step("", key, "records", "ls", raw)
	step("", "made", "records", "show", raw, "--key", key)
	step("", "completed  1", "records", "stats", raw)
	step("", `"key":"order-17"`, "records", "export", raw)
	if _, purges := store.(onlyonce.Purger); purges {
		step("", "purged: 0", "records", "purge", raw)
	} else {
		step("its server deletes expired records by itself", "", "records", "purge", raw)
	}
	step("--reason is missing", "", "records", "rm", raw, "--key", key, "--yes")
	kept := "This store keeps no audit trail: the reason, and the name of the person who decides, are not recorded.\n"
	if _, audited := store.(onlyonce.Auditor); audited {
		kept = ""
	}
	step("", kept, "records", "resolve", raw, "--key", key, "--failed", "--reason", "a test", "--yes")
	step("", "failed (final)", "records", "show", raw, "--key", key)
	step("", "deleted: 1", "records", "rm", raw, "--key", key, "--reason", "a test", "--yes")
	step("no such record", "", "records", "show", raw, "--key", key)

	file := filepath.Join(t.TempDir(), "old.jsonl")
	cmdtest.WriteFile(t, file, `{"tenant":"acme","operation":"charge","key":"order-17","status_code":0,"body":"\"made before\""}`)
	step("", "imported: 1\nalready in the store: 0\n", "records", "import", raw, file, "--skip-fingerprint")
	step("", "imported: 0\nalready in the store: 1\n", "records", "import", raw, file, "--skip-fingerprint")
	answer, err := onlyonce.Do(t.Context(), onlyonce.New(store, onlyonce.Config{}), charge, func(context.Context) (string, error) { return "made again", nil })
	if err != nil || !answer.Replayed || answer.Value != "made before" {
		t.Errorf("a retry of an imported command got %+v, %v", answer, err)
	}
	step("", "deleted: 1", "records", "rm", raw, "--key", key, "--reason", "a test", "--yes")
}

func TestRedis_TheCommandsForOperatorsTakeARedisURL(t *testing.T) {
	server := cmdtest.StartRedis(t, "--requirepass", "s3cret")
	u := "redis://:s3cret@" + server.Address() + "/0?prefix=shop"
	step := steps(t)
	const shown = "redis://:xxxxx@127.0.0.1:"
	step("findings: 1", "forgotten: 256 of the 256 keys that Migrate creates are missing: ", "doctor", u)
	step("run onlyonce migrate", "", "records", "ls", u)
	step("run onlyonce migrate", "", "bench", u)
	step("", shown, "migrate", u)
	step("", ": created 256 keys; ", "migrate", u+"2")
	step("", shown+server.Port+": up to date\n", "migrate", u)
	step("", "no findings\nRedis ", "doctor", u)
	step("", "guarantee class C: ", "doctor", u)
	step("", "checked: no key ran twice", "bench", u, "--requests", "50", "--keep", "1s")
	checkRecords(t, step, u)
	onlyRecords(t, step, "Redis", u)
	step("WRONGPASS", "", "doctor", "redis://:s3cretive@"+server.Address())
	replica := cmdtest.StartRedis(t, "--requirepass", "s3cret", "--masterauth", "s3cret", "--appendonly", "no", "--replicaof", "127.0.0.1", server.Port)
	cmdtest.Until(t, "the primary names its replica", func() bool {
		out, _ := command(t, "doctor", u)
		return strings.Contains(out, "persistence: the replica "+replica.Address()+", once it is promoted, ")
	})
}

func TestRedis_ARiskIsAcceptedInTheURLOrByAFlag(t *testing.T) {
	server := cmdtest.StartRedis(t, "--appendonly", "no")
	u := "redis://" + server.Address()
	if _, err := command(t, "migrate", u); err != nil {
		t.Fatal(err)
	}
	if _, err := command(t, "records", "ls", u); err == nil || !strings.Contains(err.Error(), "set appendonly yes") {
		t.Error(err)
	}
	for _, args := range [][]string{
		{"records", "ls", u + "?accept_risks=persistence"},
		{"bench", u + "?accept_risks=persistence", "--requests", "1"},
		{"bench", u, "--requests", "1", "--accept-risk", "persistence"},
	} {
		if out, err := command(t, args...); err != nil {
			t.Errorf("%v: %v, and printed\n%s", args, err, out)
		}
	}
	if out, err := command(t, "doctor", u+"?accept_risks=persistence"); err == nil || !strings.Contains(out, "persistence: ") {
		t.Errorf("doctor: %v, and printed\n%s", err, out)
	}
}

func TestRedis_ProxiesOnOneStoreRunACommandOnce(t *testing.T) {
	server := cmdtest.StartRedis(t, "--requirepass", "s3cret")
	proxiesRunACommandOnce(t, "redis://:s3cret@"+server.Address(), "redis://:xxxxx@", server.Restart)
}
