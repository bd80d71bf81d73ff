package schema

import (
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/onlyonce-go/onlyonce/services/internal/apitest"
)

func files(texts ...string) fstest.MapFS {
	fs := fstest.MapFS{}
	for i, text := range texts {
		fs["migrations/000"+string(rune('1'+i))+"_x.sql"] = &fstest.MapFile{Data: []byte(text)}
	}
	return fs
}

func TestProcessesThatStartTogetherMigrateOnce(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for range 8 {
		db, store, err := apitest.Open(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = store.Close()
			_ = db.Close()
		})
		wg.Go(func() {
			if err := Migrate(t.Context(), db, "x", files("CREATE TABLE x_a (a); CREATE TABLE x_b (b);", "ALTER TABLE x_a ADD COLUMN c;")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestAMigrationGoesOnWhereTheLastEnded(t *testing.T) {
	db, store, err := apitest.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	defer store.Close()
	first := "CREATE TABLE x_a (a)"
	if err := Migrate(t.Context(), db, "x", files(first)); err != nil {
		t.Fatal(err)
	}
	err = Migrate(t.Context(), db, "x", files(first, "CREATE TABLE x_b (b); CREATE nonsense"))
	if err == nil || !strings.Contains(err.Error(), "0002_x.sql") {
		t.Errorf("a broken file: %v", err)
	}
	if _, err := db.Exec("SELECT b FROM x_b"); err == nil {
		t.Error("half of a broken file stayed")
	}
	if err := Migrate(t.Context(), db, "x", files(first, "CREATE TABLE x_b (b)")); err != nil {
		t.Error(err)
	}
	if _, err := db.Exec("INSERT INTO x_b VALUES (1)"); err != nil {
		t.Error(err)
	}
	if err := Migrate(t.Context(), db, "x", files(first)); err == nil || !strings.Contains(err.Error(), "newer") {
		t.Errorf("an older program: %v", err)
	}
}

func TestParametersAreWrittenAsTheEngineWantsThem(t *testing.T) {
	for engine, want := range map[Engine]string{SQLite: "a = ? AND b = ?", MySQL: "a = ? AND b = ?", Postgres: "a = $1 AND b = $2"} {
		if got := engine.Bind("a = ? AND b = ?"); got != want {
			t.Errorf("%s: %s, want %s", engine, got, want)
		}
	}
}

func TestAServiceWithoutTablesForAnEngineSaysSo(t *testing.T) {
	db, store, err := apitest.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	defer store.Close()
	if err := Migrate(t.Context(), db, "x", fstest.MapFS{}); err == nil || !strings.Contains(err.Error(), "no tables for sqlite") {
		t.Errorf("%v", err)
	}
}
