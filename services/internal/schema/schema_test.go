package schema

import (
	"database/sql"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/onlyonce-go/onlyonce/services/internal/apitest"
)

func files(texts ...string) fstest.MapFS {
	fs := fstest.MapFS{}
	for i, text := range texts {
		fs["migrations/000"+string(rune('1'+i))+"_x.sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\n" + text)}
	}
	return fs
}

func TestMigrate_ProcessesThatStartTogetherRunEachFileOnce(t *testing.T) {
	apitest.OnEngines(t, func(t *testing.T, d *apitest.Database) {
		from := fstest.MapFS{}
		for name, file := range files("CREATE TABLE x_a (a INTEGER);\nCREATE TABLE x_b (b INTEGER);", "INSERT INTO x_a (a) VALUES (1);") {
			from[strings.Replace(name, "migrations", "migrations/"+d.Engine, 1)] = file
		}
		var wg sync.WaitGroup
		for range 8 {
			db, err := sql.Open(d.Driver, d.DSN)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			wg.Go(func() {
				if _, _, err := Migrate(t.Context(), db, "x", from); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		db, err := sql.Open(d.Driver, d.DSN)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		var rows int
		if err := db.QueryRow("SELECT count(*) FROM x_a").Scan(&rows); err != nil || rows != 1 {
			t.Errorf("a file that inserts a row left %d, %v", rows, err)
		}
	})
}

func TestMigrate_GoesOnWhereAProcessWasKilledThatMadeTheTableOfVersions(t *testing.T) {
	apitest.OnEngines(t, func(t *testing.T, d *apitest.Database) {
		if Engine(d.Engine) != MySQL {
			t.Skip("MySQL only: the others create the table in a transaction")
		}
		db, err := sql.Open(d.Driver, d.DSN)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		from := fstest.MapFS{"migrations/mysql/0001_x.sql": files("CREATE TABLE x_a (a INTEGER);")["migrations/0001_x.sql"]}
		for _, made := range []string{"", "CREATE UNIQUE INDEX x_schema_version ON x_schema (version_id)"} {
			for _, statement := range []string{"DROP TABLE IF EXISTS x_a, x_schema", "CREATE TABLE x_schema (version_id BIGINT)", made} {
				if _, err := db.Exec(statement); err != nil && statement != "" {
					t.Fatal(err)
				}
			}
			if _, _, err := Migrate(t.Context(), db, "x", from); err != nil {
				t.Error(err)
			}
			if _, err := db.Exec("INSERT INTO x_a VALUES (1)"); err != nil {
				t.Error(err)
			}
			if _, _, err := Migrate(t.Context(), db, "x", from); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestSchema_AMigrationGoesOnWhereTheLastEnded(t *testing.T) {
	db, store, err := apitest.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	defer store.Close()
	first := "CREATE TABLE x_a (a);"
	if _, _, err := Migrate(t.Context(), db, "x", files(first)); err != nil {
		t.Fatal(err)
	}
	_, _, err = Migrate(t.Context(), db, "x", files(first, "CREATE TABLE x_b (b); CREATE nonsense;"))
	if err == nil || !strings.Contains(err.Error(), "0002_x.sql") {
		t.Errorf("a broken file: %v", err)
	}
	if _, err := db.Exec("SELECT b FROM x_b"); err == nil {
		t.Error("half of a broken file stayed")
	}
	if _, _, err := Migrate(t.Context(), db, "x", files(first, "CREATE TABLE x_b (b);")); err != nil {
		t.Error(err)
	}
	if _, err := db.Exec("INSERT INTO x_b VALUES (1)"); err != nil {
		t.Error(err)
	}
	if _, _, err := Migrate(t.Context(), db, "x", files(first)); err == nil || !strings.Contains(err.Error(), "newer") {
		t.Errorf("an older program: %v", err)
	}
}

func TestSchema_ParametersAreWrittenAsTheEngineWantsThem(t *testing.T) {
	for engine, want := range map[Engine]string{SQLite: "a = ? AND b = ?", MySQL: "a = ? AND b = ?", Postgres: "a = $1 AND b = $2"} {
		if got := engine.Bind("a = ? AND b = ?"); got != want {
			t.Errorf("%s: %s, want %s", engine, got, want)
		}
	}
}

func TestSchema_AnUnsupportedEngineIsAnError(t *testing.T) {
	db, store, err := apitest.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	defer store.Close()
	if _, _, err := Migrate(t.Context(), db, "x", fstest.MapFS{}); err == nil || !strings.Contains(err.Error(), "does not support sqlite") {
		t.Errorf("%v", err)
	}
}
