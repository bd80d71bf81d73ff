package integration

import (
	"crypto/rand"
	"database/sql"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/outbox/queuetest"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
	"github.com/onlyonce-go/onlyonce/stores/storetest"
)

// documentedGrants returns the statements of docs/production.md that make the role of an
// engine, with the names in it replaced.
func documentedGrants(t *testing.T, engine string, names ...string) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/production.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n**"+engine+".**")
	_, block, _ := strings.Cut(section, "\n```sql\n")
	block, _, ended := strings.Cut(block, "\n```\n")
	if !ended {
		t.Fatalf("docs/production.md has no statements for %s", engine)
	}
	for i := 0; i < len(names); i += 2 {
		if !strings.Contains(block, names[i]) {
			t.Errorf("the statements for %s do not contain %q", engine, names[i])
		}
	}
	return strings.Split(strings.TrimSuffix(strings.NewReplacer(names...).Replace(block), ";"), ";\n")
}

// execute runs statements as the owner of the tables.
func execute(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := db.Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// suffices tests that a role can do all that a store and an outbox do, and nothing else.
func suffices(t *testing.T, role *sql.DB) {
	t.Run("store", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) onlyonce.Store {
			emptied(t, role, "onlyonce_records")
			return openOn(t, role)
		})
	})
	t.Run("outbox", func(t *testing.T) {
		queuetest.Run(t, func(t *testing.T) queuetest.Opened {
			emptied(t, role, "onlyonce_outbox")
			return openedBox(openOn(t, role), role)
		})
	})
	t.Run("migrations that have run", func(t *testing.T) { // as onlyonce proxy does at its start
		if err := sqlstore.Migrate(t.Context(), role); err != nil {
			t.Error(err)
		}
	})
	for _, statement := range []string{"SELECT * FROM of_another_program", "CREATE TABLE other (n int)", "DROP TABLE onlyonce_records", "DELETE FROM onlyonce_fence"} {
		if _, err := role.Exec(statement); err == nil {
			t.Errorf("the role may %s", statement)
		}
	}
}

func TestGrants_TheDocumentedOnesSufficeOnPostgreSQL(t *testing.T) {
	needs.Time(t)
	t.Parallel()
	schema := newPostgresSchema(t)
	_, owner := schema.open(t)
	name := "onlyonce_app_" + strings.ToLower(rand.Text())
	execute(t, owner, "CREATE TABLE of_another_program (n int)")
	t.Cleanup(func() { execute(t, owner, "DROP OWNED BY "+name, "DROP ROLE "+name) })
	execute(t, owner, documentedGrants(t, "PostgreSQL", "onlyonce_app", name, "SCHEMA public", "SCHEMA "+schema.name)...)

	u, err := url.Parse(schema.with(t))
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(name, "PASSWORD")
	suffices(t, openPool(t, "pgx", u.String()))
	t.Run("pgxstore", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) onlyonce.Store {
			emptied(t, owner, "onlyonce_records")
			return openPgxstore(t, u.String())
		})
	})
}

func TestGrants_TheDocumentedOnesSufficeOnMySQL(t *testing.T) {
	needs.Time(t)
	t.Parallel()
	database := newMySQLDatabase(t)
	_, owner := database.open(t)
	name := "app_" + strings.ToLower(rand.Text()[:16])
	execute(t, owner, "CREATE TABLE of_another_program (n int)")
	t.Cleanup(func() { execute(t, owner, "DROP USER '"+name+"'@'%'") })
	execute(t, owner, documentedGrants(t, "MySQL and MariaDB", "onlyonce_app", name, "shop.", database.name+".")...)

	cfg, err := mysql.ParseDSN(database.config(t).FormatDSN())
	if err != nil {
		t.Fatal(err)
	}
	cfg.User, cfg.Passwd = name, "PASSWORD"
	suffices(t, openPool(t, "mysql", cfg.FormatDSN()))
}
