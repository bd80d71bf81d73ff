package integration

import (
	"database/sql"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// rejected wants Open to name each of these risks, and to open the store if they
// are accepted.
func rejected(t *testing.T, db *sql.DB, risks ...string) {
	t.Helper()
	_, err := sqlstore.Open(t.Context(), db, sqlstore.Config{})
	if err == nil {
		t.Fatal("the settings were not rejected")
	}
	for _, risk := range risks {
		if !strings.Contains(err.Error(), risk+": ") {
			t.Errorf("open does not name %s: %v", risk, err)
		}
	}
	s, err := sqlstore.Open(t.Context(), db, sqlstore.Config{AcceptRisks: risks})
	if err != nil {
		t.Fatalf("open with all risks accepted: %v", err)
	}
	found, err := s.Diagnose(t.Context())
	if err != nil {
		t.Error(err)
	}
	var names []string
	for _, f := range found {
		names = append(names, f.Name)
		if f.Problem == "" || f.Fix == "" {
			t.Errorf("the finding %+v says too little", f)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names) // several settings may have one
	if slices.Sort(risks); !slices.Equal(names, risks) {
		t.Errorf("the findings are %v, want %v", names, risks)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestDiagnose_UnsafeSettingsOfPostgresAreRejected(t *testing.T) {
	needs.Time(t)
	server := newOwnServer(t, faults.PostgreSQL.With("-c", "fsync=off", "-c", "full_page_writes=off"))
	if err := sqlstore.Migrate(t.Context(), server.admin); err != nil {
		t.Fatal(err)
	}
	rejected(t, server.admin, "fsync", "full-page-writes")

	server.Kill()
	server.Kind = faults.PostgreSQL
	if err := os.WriteFile(filepath.Join(server.Data(), "standby.signal"), nil, 0o644); err != nil { // the server reads it
		t.Fatal(err)
	}
	server.start(t)
	_, err := sqlstore.Open(t.Context(), server.admin, sqlstore.Config{AcceptRisks: []string{"fsync"}})
	if err == nil || !strings.Contains(err.Error(), "replica: ") || strings.Contains(err.Error(), "fsync: ") {
		t.Errorf("open on a replica got error %v", err)
	}
	if _, err := sqlstore.Open(t.Context(), server.admin, sqlstore.Config{AcceptRisks: []string{"replica"}}); err == nil {
		t.Error("that risk can't be accepted")
	}
}

func TestDiagnose_UnsafeSettingsOfMariaDBAreRejected(t *testing.T) {
	needs.Time(t)
	server := newOwnServer(t, faults.MariaDB.With("--innodb-flush-log-at-trx-commit=2", "--log-bin=bin", "--sync-binlog=0", "--binlog-format=STATEMENT", "--sysdate-is-now"))
	if _, err := server.admin.Exec("CREATE DATABASE shop"); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("mysql", faults.MariaDB.DSN(server.Port, "shop"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := sqlstore.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	rejected(t, db, "binlog-format", "innodb-flush-log", "sync-binlog", "sysdate-is-now")
	semiSync := func(set string) {
		t.Helper()
		if _, err := server.admin.Exec("SET GLOBAL rpl_semi_sync_master_" + set); err != nil {
			t.Fatal(err)
		}
	}
	semiSync("timeout = 1") // until its default has passed, Open would wait for a replica
	semiSync("enabled = ON")
	rejected(t, db, "binlog-format", "innodb-flush-log", "semi-sync-fallback", "sync-binlog", "sysdate-is-now")
	semiSync("enabled = OFF")
	if _, err := server.admin.Exec("SET GLOBAL read_only = 1"); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlstore.Open(t.Context(), db, sqlstore.Config{AcceptRisks: []string{"binlog-format", "innodb-flush-log", "sync-binlog", "sysdate-is-now"}}); err == nil || !strings.Contains(err.Error(), "replica: ") {
		t.Errorf("open on a replica got error %v", err)
	}
}

func TestDiagnose_AnUnsupportedDatabaseIsReported(t *testing.T) {
	schema := newPostgresSchema(t)
	db := schema.pool(t)
	if _, err := db.Exec(`CREATE FUNCTION version() RETURNS text LANGUAGE sql AS $$ SELECT 'CockroachDB CCL v25.1' $$`); err != nil {
		t.Fatal(err)
	}
	other := schema.pool(t, "search_path="+schema.name+",pg_catalog")
	_, err := sqlstore.Open(t.Context(), other, sqlstore.Config{})
	if err == nil || !strings.Contains(err.Error(), "PostgreSQL 13") || !strings.Contains(err.Error(), "CockroachDB") {
		t.Errorf("open got error %v", err)
	}
	if _, err := sqlstore.Open(t.Context(), db, sqlstore.Config{}); err == nil || !strings.Contains(err.Error(), "onlyonce migrate") {
		t.Errorf("open without a schema got error %v", err)
	}
}

func TestDiagnose_ConcurrentMigrationsMakeOneSchema(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) *sql.DB{
		"PostgreSQL": func(t *testing.T) *sql.DB { return newPostgresSchema(t).pool(t) },
		"MySQL":      func(t *testing.T) *sql.DB { return newMySQLDatabase(t).pool(t) },
	} {
		t.Run(name, func(t *testing.T) {
			db := open(t)
			crowd(8, func(int) {
				if err := sqlstore.Migrate(t.Context(), db); err != nil {
					t.Error(err)
				}
			})
			openOn(t, db)
		})
	}
}
