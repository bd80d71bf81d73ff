package integration

import (
	"database/sql"
	"os"
	"strings"
	"testing"
)

// sqliteStatement returns a statement of the SQLite store's.
func sqliteStatement(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../stores/sqlstore/sqlite.sql")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "-- name: "+name+"\n")
	statement, _, _ := strings.Cut(rest, "-- name: ")
	if !found || strings.TrimSpace(statement) == "" {
		t.Fatalf("there is no statement %q", name)
	}
	return statement
}

// sqlitePlan returns how SQLite runs a statement, a step a line.
func sqlitePlan(t *testing.T, db *sql.DB, statement string, args ...any) string {
	t.Helper()
	rows, err := db.Query("EXPLAIN QUERY PLAN "+statement, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var plan []string
	for rows.Next() {
		var id, parent, unused int
		var step string
		if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
			t.Fatal(err)
		}
		plan = append(plan, step)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return strings.Join(plan, "\n")
}

func TestSQLiteFindsWhatExpiredThroughAnIndex(t *testing.T) {
	_, db := newSQLite(t)
	for _, name := range []string{"highest due", "purge"} {
		plan := sqlitePlan(t, db, sqliteStatement(t, name), 1, 100)
		if !strings.Contains(plan, "INDEX onlyonce_records_expires_at (expires_at<?)") {
			t.Errorf("%s does not use the index:\n%s", name, plan)
		}
		if strings.Contains(plan, "SCAN onlyonce_records") || strings.Contains(plan, "TEMP B-TREE") {
			t.Errorf("%s reads or sorts what did not expire:\n%s", name, plan)
		}
	}
}
