package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// pool opens a file with settings of the DSN.
func pool(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func migrated(t *testing.T) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "records.db")
	db := openSQLiteDB(t, file)
	if err := errors.Join(sqlstore.Migrate(t.Context(), db), db.Close()); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestSQLite_SettingsThatWouldBreakThePromiseAreRejectedByName(t *testing.T) {
	for _, c := range []struct {
		name, settings string
		risks          []string
	}{
		{"flushes no commit", "_pragma=synchronous(normal)", []string{"synchronous"}},
		{"flushes nothing", "_pragma=synchronous(off)", []string{"synchronous"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			db := pool(t, "file:"+migrated(t)+"?"+c.settings)
			_, err := sqlstore.Open(t.Context(), db, sqlstore.Config{})
			for _, name := range c.risks {
				if err == nil || !strings.Contains(err.Error(), name+": ") {
					t.Errorf("open returned %v, which does not name %s", err, name)
				}
			}
			s, err := sqlstore.Open(t.Context(), db, sqlstore.Config{AcceptRisks: c.risks})
			if err != nil {
				t.Fatalf("with the risks accepted: %v", err)
			}
			defer s.Close()
			found, err := s.Diagnose(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, f := range found {
				names = append(names, f.Name)
				if f.Problem == "" || f.Fix == "" {
					t.Errorf("the finding %q does not say what is wrong or what to do", f.Name)
				}
			}
			if !slices.Equal(names, c.risks) {
				t.Errorf("found %v, want %v", names, c.risks)
			}
			_, err = s.RunTx(t.Context(), claimOf("k"), func(ctx context.Context, tx *sql.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
				var full int
				if err := tx.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&full); err != nil || full != 2 {
					t.Errorf("on the store's own connection, synchronous is %d, %v", full, err)
				}
				return completed, nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestSQLite_AFileInUTF16IsRejectedUnlessThatIsAccepted(t *testing.T) {
	db := pool(t, sqliteDSN(filepath.Join(t.TempDir(), "records.db")))
	if _, err := db.Exec("PRAGMA encoding = 'UTF-16le'; CREATE TABLE own (name TEXT)"); err != nil {
		t.Fatal(err)
	}
	if err := sqlstore.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlstore.Open(t.Context(), db, sqlstore.Config{}); err == nil || !strings.Contains(err.Error(), "encoding: the database's encoding is UTF-16le") {
		t.Errorf("open returned %v", err)
	}
	s, err := sqlstore.Open(t.Context(), db, sqlstore.Config{AcceptRisks: []string{"encoding"}})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}

func TestSQLite_IsPutIntoWALMode(t *testing.T) {
	file := filepath.Join(t.TempDir(), "records.db")
	db := pool(t, "file:"+file)
	if err := sqlstore.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	s, err := sqlstore.Open(t.Context(), db, sqlstore.Config{PurgeEvery: sqlstore.NeverPurge})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var mode string
	if err := pool(t, "file:"+file).QueryRow("PRAGMA journal_mode").Scan(&mode); err != nil || mode != "wal" {
		t.Errorf("the journal mode is %q, %v", mode, err)
	}
}

func TestSQLite_ThatCanNotWorkIsRejectedWithWhatToDo(t *testing.T) {
	for _, c := range []struct {
		name string
		open func(t *testing.T) *sql.DB
		want string
	}{
		{"a pool of one", func(t *testing.T) *sql.DB {
			db := openSQLiteDB(t, migrated(t))
			db.SetMaxOpenConns(1)
			return db
		}, "SetMaxOpenConns"},
		{"a database in memory", func(t *testing.T) *sql.DB { return pool(t, ":memory:") }, "in memory"},
		{"a shared database in memory", func(t *testing.T) *sql.DB {
			db := pool(t, "file:shared?mode=memory&cache=shared")
			if err := sqlstore.Migrate(t.Context(), db); err != nil {
				t.Fatal(err)
			}
			return db
		}, "in memory"},
		{"connections that share a cache", func(t *testing.T) *sql.DB { return pool(t, "file:"+migrated(t)+"?cache=shared") }, "shared-cache: "},
		{"connections that read what is not committed", func(t *testing.T) *sql.DB {
			return pool(t, "file:"+migrated(t)+"?cache=shared&_pragma=read_uncommitted(1)")
		}, "shared-cache: "},
		{"connections that shut each other out", func(t *testing.T) *sql.DB { return pool(t, "file:"+migrated(t)+"?_pragma=locking_mode(exclusive)") }, "locking_mode"},
		{"a file that is opened for reading", func(t *testing.T) *sql.DB { return pool(t, "file:"+migrated(t)+"?mode=ro") }, "can't be written"},
		{"connections that only query", func(t *testing.T) *sql.DB { return pool(t, sqliteDSN(migrated(t))+"&_pragma=query_only(1)") }, "can't be written"},
		{"no schema", func(t *testing.T) *sql.DB { return openSQLiteDB(t, filepath.Join(t.TempDir(), "empty.db")) }, "run Migrate"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := sqlstore.Open(t.Context(), c.open(t), sqlstore.Config{PurgeEvery: sqlstore.NeverPurge})
			if err == nil {
				s.Close()
				t.Fatal("it was opened")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("open returned %q, which does not say %q", err, c.want)
			}
		})
	}
}

func TestSQLite_KnowsTheRisksThatItAccepts(t *testing.T) {
	_, err := sqlstore.Open(t.Context(), openSQLiteDB(t, migrated(t)), sqlstore.Config{AcceptRisks: []string{"everything"}})
	if err == nil || !strings.Contains(err.Error(), `no risk "everything"`) {
		t.Errorf("open returned %v", err)
	}
}

func TestSQLite_MigrationsRunByAnotherToolAreEnough(t *testing.T) {
	db := openSQLiteDB(t, filepath.Join(t.TempDir(), "records.db"))
	list, err := sqlstore.Migrations("sqlite")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range list {
		if _, err := db.Exec(m.SQL); err != nil {
			t.Fatalf("version %d, %s: %v", m.Version, m.Name, err)
		}
	}
	if err := sqlstore.Migrate(t.Context(), db); err != nil {
		t.Errorf("there was something left to migrate: %v", err)
	}
	s, err := sqlstore.Open(t.Context(), db, sqlstore.Config{PurgeEvery: sqlstore.NeverPurge})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}

func TestSQLite_MigrateLeavesAConnectionAsItWas(t *testing.T) {
	db := pool(t, "file:"+filepath.Join(t.TempDir(), "records.db")+"?_pragma=busy_timeout(123)")
	db.SetMaxOpenConns(1)
	for range 2 {
		if err := sqlstore.Migrate(t.Context(), db); err != nil {
			t.Fatal(err)
		}
	}
	var timeout int
	if err := db.QueryRow("PRAGMA busy_timeout").Scan(&timeout); err != nil || timeout != 123 {
		t.Errorf("the timeout is %d, %v", timeout, err)
	}
}

func TestSQLite_AClosedStoreRejectsEverythingAndReturnsItsConnection(t *testing.T) {
	s, db := newSQLite(t)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Claim(context.Background(), onlyonce.Claim{ID: nextID(), Owner: owner(), SkipFingerprint: true}); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("claim returned %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
	if n := db.Stats().InUse; n != 0 {
		t.Errorf("%d connections are in use", n)
	}
}

func TestSQLite_CheckpointsLessOftenUnlessTheUserSaysHow(t *testing.T) {
	for settings, want := range map[string]int{"_pragma=synchronous(full)": 4000, "_pragma=wal_autocheckpoint(0)&_pragma=synchronous(full)": 0} {
		db := pool(t, "file:"+migrated(t)+"?"+settings)
		s, err := sqlstore.Open(t.Context(), db, sqlstore.Config{PurgeEvery: sqlstore.NeverPurge})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		_, err = s.RunTx(t.Context(), claimOf("k"), func(ctx context.Context, tx *sql.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
			var pages int
			if err := tx.QueryRowContext(ctx, "PRAGMA wal_autocheckpoint").Scan(&pages); err != nil || pages != want {
				t.Errorf("with %s the writer checkpoints at %d pages, %v; want %d", settings, pages, err, want)
			}
			return completed, nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func TestSQLite_ADSNThatTurnsTheWriteAheadLogOffIsRejectedAtOnce(t *testing.T) {
	for _, settings := range []string{"_pragma=journal_mode(delete)", "_pragma=busy_timeout(500)&_pragma=journal_mode(truncate)"} {
		file := migrated(t)
		synctest.Test(t, func(t *testing.T) { // so that only the waits count, however slow the disk is
			db := pool(t, "file:"+file+"?"+settings)
			began := time.Now()
			_, err := sqlstore.Open(t.Context(), db, sqlstore.Config{})
			if err == nil || !strings.Contains(err.Error(), "journal-mode: ") {
				t.Errorf("open with %s returned %v", settings, err)
			}
			if took := time.Since(began); took > 10*time.Second { // for so long it is tried while others have the file
				t.Errorf("open with %s took %v", settings, took)
			}
		})
	}
}

func TestSQLite_DamagedPagesAreFound(t *testing.T) {
	file := filepath.Join(t.TempDir(), "records.db")
	s, db := openSQLite(t, file)
	for i := range 200 {
		c := onlyonce.Claim{ID: onlyonce.ID{Key: fmt.Sprint(i)}, Owner: owner(), SkipFingerprint: true, Lease: time.Minute}
		if _, err := s.Claim(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	if found, err := s.Diagnose(t.Context()); err != nil || len(found) != 0 {
		t.Fatalf("a whole file has the findings %v and error %v", found, err)
	}
	if err := errors.Join(s.Close(), db.Close()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const page = 4096
	for at := 3 * page; at < len(text); at += page { // the first bytes of each page are its type
		for i := range 4 {
			text[at+i] ^= 0x55
		}
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	damaged, err := sqlstore.Open(t.Context(), openSQLiteDB(t, file), sqlstore.Config{})
	if err != nil {
		if !strings.Contains(err.Error(), "damaged: ") {
			t.Errorf("open returned %v", err)
		}
		return
	}
	defer damaged.Close()
	found, err := damaged.Diagnose(t.Context())
	if err != nil || len(found) != 1 || found[0].Name != "damaged" {
		t.Errorf("the findings are %v with error %v", found, err)
	}
}
