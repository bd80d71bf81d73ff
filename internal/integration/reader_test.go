package integration

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// readers return a pool of a new database, a pool of it that may only read, and how the database
// rejects a write of the latter.
var readers = map[string]func(t *testing.T) (full, reading *sql.DB, rejects string){
	"sqlite": func(t *testing.T) (full, reading *sql.DB, rejects string) {
		file := filepath.Join(t.TempDir(), "records.db")
		return openSQLiteDB(t, file), openPool(t, "sqlite", "file:"+file+"?mode=ro"), "readonly"
	},
	"postgres": func(t *testing.T) (full, reading *sql.DB, rejects string) {
		schema := newPostgresSchema(t)
		db := schema.pool(t)
		role := "reader_of_" + schema.name
		makeFor(t, "pgx", schema.dsn, "ROLE "+role, "")
		for _, grant := range []string{"GRANT USAGE ON SCHEMA " + schema.name, "ALTER DEFAULT PRIVILEGES IN SCHEMA " + schema.name + " GRANT SELECT ON TABLES"} {
			if _, err := db.Exec(grant + " TO " + role); err != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(func() {
			if _, err := db.Exec("DROP OWNED BY " + role); err != nil {
				t.Error(err)
			}
		})
		return db, schema.pool(t, "role="+role), "permission denied"
	},
	"mysql": func(t *testing.T) (full, reading *sql.DB, rejects string) {
		d := newMySQLDatabase(t)
		user := "r" + d.name[len("onlyonce_"):][:20]
		makeFor(t, "mysql", d.dsn, "USER "+user, "")
		db := d.pool(t)
		if _, err := db.Exec("GRANT SELECT ON " + d.name + ".* TO " + user); err != nil {
			t.Fatal(err)
		}
		cfg := d.config(t)
		cfg.User, cfg.Passwd = user, ""
		c, err := mysql.NewConnector(cfg)
		if err != nil {
			t.Fatal(err)
		}
		reading = sql.OpenDB(c)
		t.Cleanup(func() { reading.Close() })
		return db, reading, "denied"
	},
}

func TestReader_NeedsOnlyTheRightToRead(t *testing.T) {
	for name, open := range readers {
		t.Run(name, func(t *testing.T) {
			full, reading, rejects := open(t)
			if _, err := full.Exec("CREATE TABLE own (n INT)"); err != nil {
				t.Fatal(err)
			}
			if _, err := sqlstore.OpenReader(t.Context(), reading); err == nil || !strings.Contains(err.Error(), "run Migrate") {
				t.Errorf("a database without tables: %v", err)
			}
			s, _ := openMigrated(t, full)
			r := unknownRecord(t, s)
			if err := s.ResolveAudited(t.Context(), r, onlyonce.Settlement{State: onlyonce.StateUnknown}, byHand); err != nil {
				t.Fatal(err)
			}
			if _, err := reading.Exec("DELETE FROM onlyonce_records"); err == nil || !strings.Contains(err.Error(), rejects) {
				t.Fatalf("the pool may write: %v", err)
			}
			reader, err := sqlstore.OpenReader(t.Context(), reading)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range []onlyonce.Filter{{}, {Unresolved: true}, {IDPrefix: "3"}, {Tenant: "acme"}} {
				n := 0
				for got, err := range reader.List(t.Context(), f) {
					if err != nil || got.ID != r.ID || got.State != onlyonce.StateUnknown {
						t.Errorf("%+v lists %+v, error %v", f, got, err)
					}
					n++
				}
				if n != 1 && f.IDPrefix == "" {
					t.Errorf("%+v lists %d records", f, n)
				}
			}
			if entries, err := reader.AuditTrail(t.Context(), r.ID); len(entries) != 1 || err != nil {
				t.Errorf("the audit trail is %+v, error %v", entries, err)
			}
			if all, err := reader.CountRecords(t.Context()); len(all) != 1 || err != nil {
				t.Errorf("the summary is %+v, error %v", all, err)
			}
		})
	}
}
