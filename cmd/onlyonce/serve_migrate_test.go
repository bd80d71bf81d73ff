package main

import (
	"crypto/rand"
	"database/sql"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
	"github.com/onlyonce-go/onlyonce/internal/needs"
)

// grants returns the statements of docs/production.md that follow a text.
func grants(t *testing.T, after string) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/production.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), after)
	_, block, _ := strings.Cut(section, "\n```sql\n")
	block, _, ended := strings.Cut(block, ";\n```\n")
	if !ended {
		t.Fatalf("docs/production.md has no statements after %q", after)
	}
	return strings.Split(block, ";\n")
}

func TestServe_WithoutMigrationsItRunsAsARoleThatMayNotCreateTables(t *testing.T) {
	needs.Time(t)
	t.Parallel()
	owner, data := cmdtest.NewPostgresURL(t), t.TempDir()
	file := "sqlite:" + filepath.Join(data, "onlyonce.db")
	refuses := func(at, names string) {
		t.Helper()
		out := onlyonceWith(nil, "serve", "--no-migrate", "--listen", "127.0.0.1:0", "--data", data, "--store", at)
		if !strings.Contains(out, names) || !strings.Contains(out, "onlyonce migrate --serve") {
			t.Errorf("without all tables, serve prints\n%s", out)
		}
	}
	refuses(owner, "the schema does not fit this program")
	if out := onlyonceWith(nil, "migrate", owner); !strings.HasSuffix(out, ": created, at version 10\n") {
		t.Errorf("migrate prints\n%s", out)
	}
	refuses(owner, file) // which does not exist
	for _, u := range []string{owner, file} {
		if out := onlyonceWith(nil, "migrate", "--serve", u); !strings.Contains(out, ": tables of the orders API: created, at version 3\n") || strings.Contains(out, "items") != (u == file) {
			t.Errorf("migrate --serve prints\n%s", out)
		}
		if out := onlyonceWith(nil, "migrate", "--serve", u); strings.Contains(out, "created") {
			t.Errorf("the second migrate --serve prints\n%s", out)
		}
	}

	u, err := url.Parse(owner)
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("pgx", owner)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	name := "onlyonce_serve_" + strings.ToLower(rand.Text())
	execute := func(statement string) {
		if _, err := db.Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	names := strings.NewReplacer("onlyonce_app", name, "SCHEMA public", "SCHEMA "+u.Query().Get("search_path"))
	t.Cleanup(func() { execute("DROP OWNED BY " + name); execute("DROP ROLE " + name) })
	for _, after := range []string{"\n**PostgreSQL.**", "\n**`onlyonce serve`**"} {
		for _, statement := range grants(t, after) {
			execute(names.Replace(statement))
		}
	}
	u.User = url.UserPassword(name, "PASSWORD")

	s := startServe(t, data, "--no-migrate", "--store", u.String())
	made, item := s.do("POST", "/orders", oneOrder, "Idempotency-Key", "k"), s.post("k", "Lamp")
	if made.status != 201 || item.status != 201 {
		t.Errorf("order %+v, item %+v", made, item)
	}
	cmdtest.Until(t, "the order has its shipment", func() bool { return strings.Contains(s.get("/orders").body, `"id":"shp_`) })
	if again := s.do("POST", "/orders", oneOrder, "Idempotency-Key", "k"); again.body != made.body {
		t.Errorf("the repeat got %+v, the first %+v", again, made)
	}
	s.ready()
}

func TestServe_WithoutMigrationsItNamesTheAPIWhoseTablesAreNotUpToDate(t *testing.T) {
	needs.Time(t)
	t.Parallel()
	data := t.TempDir()
	file := filepath.Join(data, "onlyonce.db")
	onlyonceWith(nil, "migrate", "sqlite:"+file)
	refuses := func(says string) {
		t.Helper()
		out := onlyonceWith(nil, "serve", "--no-migrate", "--listen", "127.0.0.1:0", "--data", data)
		if !strings.Contains(out, says) {
			t.Errorf("serve prints\n%s\nwant %q in it", out, says)
		}
	}
	refuses("the tables of items are missing or can't be read: run onlyonce migrate --serve")
	onlyonceWith(nil, "migrate", "--serve", "sqlite:"+file)
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, step := range []struct{ statement, says string }{
		{"DELETE FROM orders_schema WHERE version_id = 3", "the schema of orders has version 2, older than 3: run onlyonce migrate --serve"},
		{"INSERT INTO orders_schema (version_id, is_applied) VALUES (3, 1), (4, 1)", "the schema of orders has version 4, newer than 3: run a newer program"},
	} {
		if _, err := db.Exec(step.statement); err != nil {
			t.Fatal(err)
		}
		refuses(step.says)
	}
}

func TestMigrate_TheTablesOfServeAreOnlyForDatabasesThatServeCanUse(t *testing.T) {
	t.Parallel()
	for says, args := range map[string][]string{
		"leave out --serve, or name a SQL database": {"migrate", "--serve", "redis://127.0.0.1:1"},
		"--print prints only the SQL of the store":  {"migrate", "--serve", "--print", "sqlite:a.db"},
	} {
		if out := onlyonceWith(nil, args...); !strings.Contains(out, says) {
			t.Errorf("%v prints\n%s", args, out)
		}
	}
}
