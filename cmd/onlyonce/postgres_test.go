package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"net/url"
	"os"
	"strings"
	"testing"
)

// newPostgresURL is the URL of a schema of its own, which is dropped at the end.
func newPostgresURL(t *testing.T) string {
	t.Helper()
	server := os.Getenv("ONLYONCE_POSTGRES")
	if server == "" {
		server = "postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable"
	}
	db, err := sql.Open("pgx", server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if err := db.PingContext(ctx); err != nil {
		if os.Getenv("ONLYONCE_REQUIRE_SERVICES") != "" {
			t.Fatalf("PostgreSQL: %v", err)
		}
		t.Skipf("PostgreSQL is not there: %v", err)
	}
	schema := "onlyonce_" + strings.ToLower(rand.Text())
	if _, err := db.Exec("CREATE SCHEMA " + schema); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := db.Exec("DROP SCHEMA " + schema + " CASCADE"); err != nil {
			t.Error(err)
		}
	})
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("search_path", schema)
	u.RawQuery = q.Encode()
	return u.String()
}

func TestTheCommandsForOperatorsTakeAPostgresURL(t *testing.T) {
	u := newPostgresURL(t)
	for _, step := range []struct {
		args  []string
		fails string
		says  string
	}{
		{[]string{"doctor", u}, "findings: 1", "schema: the database has no tables of onlyonce; run onlyonce migrate with the same URL\n"},
		{[]string{"migrate", u}, "", ": created, at version 4\n"},
		{[]string{"migrate", u}, "", " is up to date, at version 4\n"},
		{[]string{"doctor", u}, "", "no findings\nPostgreSQL "},
		{[]string{"records", "ls", u}, "", "ID  STATE"},
		{[]string{"doctor", u + "&default_transaction_read_only=on"}, "findings: 1", "replica: "},
	} {
		var out strings.Builder
		cmd := rootCommand()
		cmd.SetOut(&out)
		cmd.SetArgs(step.args)
		err := cmd.ExecuteContext(t.Context())
		if err == nil && step.fails != "" || err != nil && err.Error() != step.fails || !strings.Contains(out.String(), step.says) {
			t.Errorf("%s: %v, and printed\n%s", step.args[0], err, &out)
		}
	}
}
