package integration

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// fillings fill the table with records of 50 tenants and 40 operations, nearly all
// of them completed, and tell the database how they are.
var fillings = map[string][]string{
	"PostgreSQL": {
		`INSERT INTO onlyonce_records (id, tenant, operation, idem_key, state, owner, attempt, created_at, fence, lease_until, settled_at, result_ref)
SELECT decode(md5(n::text) || md5('x' || n), 'hex'), 'tenant ' || (n % 50), 'operation ' || (n % 40), 'key ' || n,
       CASE WHEN n % 1000 = 0 THEN 'unknown' ELSE 'completed' END, 'owner', 1, n, n, 0, n, 'ref ' || n
FROM generate_series(1, 20000) n`,
		"ANALYZE onlyonce_records",
	},
	"MySQL": {
		`INSERT INTO onlyonce_records (id, tenant, operation, idem_key, state, owner, attempt, created_at, fence, lease_until, settled_at, result_ref)
SELECT UNHEX(SHA2(n, 256)), CONCAT('tenant ', n % 50), CONCAT('operation ', n % 40), CONCAT('key ', n),
       IF(n % 1000 = 0, 'unknown', 'completed'), 'owner', 1, n, n, 0, n, CONCAT('ref ', n)
FROM (SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d + 1 AS n FROM digits a, digits b, digits c, digits e) numbers`,
		"ANALYZE TABLE onlyonce_records",
	},
	"SQLite": {
		`INSERT INTO onlyonce_records (id, tenant, operation, idem_key, state, owner, attempt, created_at, fence, lease_until, settled_at, result_ref)
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 20000)
SELECT randomblob(32), 'tenant ' || (n % 50), 'operation ' || (n % 40), 'key ' || n,
       iif(n % 1000 = 0, 'unknown', 'completed'), x'00', 1, n, n, 0, n, 'ref ' || n
FROM numbers`,
	},
}

// A lister is a store on one database whose queries are noted.
type lister struct {
	store *sqlstore.Store
	db    *sql.DB // not noted
	hook  *hook
}

// onFilled runs a test on every database, with many records.
func onFilled(t *testing.T, f func(t *testing.T, name string, l lister)) {
	onNoted(t, func(t *testing.T, name string, l lister) {
		l.exec(t, fillings[name]...)
		f(t, name, l)
	})
}

// exec runs statements, and notes none.
func (l lister) exec(t *testing.T, statements ...string) {
	t.Helper()
	for _, text := range statements {
		if _, err := l.db.Exec(text); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
}

// onNoted runs a test on every database.
func onNoted(t *testing.T, f func(t *testing.T, name string, l lister)) {
	run := func(name string, open func(t *testing.T) lister) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := open(t)
			if name == "MySQL" {
				l.exec(t, "CREATE TABLE digits (d INT)", "INSERT INTO digits VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)")
			}
			f(t, name, l)
		})
	}
	run("PostgreSQL", func(t *testing.T) lister {
		s := newPostgresSchema(t)
		_, db := s.open(t)
		pool, h := hookedPostgres(t, s)
		return lister{openOn(t, pool), db, h}
	})
	run("MySQL", func(t *testing.T) lister {
		d := newMySQLDatabase(t)
		_, db := d.open(t)
		pool, h := hookedMySQL(t, d)
		return lister{openOn(t, pool), db, h}
	})
	run("SQLite", func(t *testing.T) lister {
		file := filepath.Join(t.TempDir(), "records.db")
		db := openSQLiteDB(t, file)
		if err := sqlstore.Migrate(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		pool, h := hookedSQLite(t, file)
		return lister{openOn(t, pool), db, h}
	})
}

// plan returns the database's plan for the last query.
func (l lister) plan(t *testing.T, name string) string {
	t.Helper()
	sent := l.hook.queries()
	return l.explain(t, name, sent[len(sent)-1])
}

// explain returns the database's plan for a query.
func (l lister) explain(t *testing.T, name string, q query) string {
	t.Helper()
	explain := "EXPLAIN "
	if name == "SQLite" {
		explain = "EXPLAIN QUERY PLAN "
	}
	rows, err := l.db.Query(explain+q.text, q.args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, q.text)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for rows.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(sql.NullString)
		}
		if err := rows.Scan(values...); err != nil {
			t.Fatal(err)
		}
		for i, v := range values {
			fmt.Fprintf(&all, "%s=%s ", columns[i], v.(*sql.NullString).String)
		}
		all.WriteString("\n")
	}
	return all.String()
}

// byID are the indexes of the id, with the beginning of one that the filling has. Only few digits
// make PostgreSQL read the list in its order.
var byID = map[string]struct{ index, prefix string }{
	"PostgreSQL": {"onlyonce_records_pkey", "8f14"},
	"MySQL":      {"PRIMARY", "7902"},
	"SQLite":     {"onlyonce_records_id", "3"}, // its ids are random
}

func TestList_RecordsAreListedByIndex(t *testing.T) {
	onFilled(t, func(t *testing.T, name string, l lister) {
		for index, f := range map[string]onlyonce.Filter{
			"onlyonce_records_tenant":     {Tenant: "tenant 7"},
			"onlyonce_records_operation":  {Operation: "operation 7"},
			"onlyonce_records_result_ref": {Ref: "ref 7"},
			"onlyonce_records_created_at": {},
			"onlyonce_records_unresolved": {Unresolved: true},
			byID[name].index:              {IDPrefix: byID[name].prefix},
		} {
			for round := range 2 { // of a page after another, too
				n := 0
				for r, err := range l.store.List(t.Context(), f) {
					if err != nil {
						t.Fatal(err)
					}
					if n++; f.Tenant != "" && r.ID.Tenant != f.Tenant || f.Operation != "" && r.ID.Operation != f.Operation {
						t.Errorf("%+v lists %+v", f, r)
					}
					if n == 100+round*200 {
						break
					}
				}
				plan := l.plan(t, name)
				if index == "onlyonce_records_created_at" && name == "SQLite" {
					index = "INTEGER PRIMARY KEY" // created_at itself
				}
				if !strings.Contains(plan, index) || n == 0 {
					t.Errorf("%+v lists %d records, not by %s:\n%s", f, n, index, plan)
				}
				if name != "PostgreSQL" && f.Ref == "" && !f.Unresolved && f.IDPrefix == "" && (strings.Contains(plan, "filesort") || strings.Contains(plan, "TEMP B-TREE")) {
					t.Errorf("%+v is sorted:\n%s", f, plan)
				}
			}
		}
	})
}

func TestList_WhatIsRunningIsListedByIndex(t *testing.T) {
	onFilled(t, func(t *testing.T, name string, l lister) {
		id := onlyonce.ID{Tenant: "acme", Operation: "POST /payments", Key: "order-17"}
		if _, err := l.store.Claim(t.Context(), onlyonce.Claim{ID: id, Owner: "0123456789abcdef", SkipFingerprint: true, Lease: time.Hour}); err != nil {
			t.Fatal(err)
		}
		var found []onlyonce.ID
		for r, err := range l.store.List(t.Context(), onlyonce.Filter{State: onlyonce.StateProcessing}) {
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, r.ID)
		}
		if len(found) != 1 || found[0] != id {
			t.Errorf("it lists %v", found)
		}
		if plan := l.plan(t, name); !strings.Contains(plan, "onlyonce_records_unresolved") {
			t.Errorf("it is not listed by its index:\n%s", plan)
		}
	})
}

func TestList_WhatIsUnresolvedIsCountedByIndex(t *testing.T) {
	onFilled(t, func(t *testing.T, name string, l lister) {
		n, oldest, err := l.store.Unresolved(t.Context())
		if err != nil || n == 0 || oldest <= 0 {
			t.Errorf("%d are unresolved, the oldest for %v, with error %v", n, oldest, err)
		}
		if plan := l.plan(t, name); !strings.Contains(plan, "onlyonce_records_unresolved") {
			t.Errorf("they are not counted by their index:\n%s", plan)
		}
	})
}
