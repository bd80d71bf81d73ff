package integration

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
)

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

func TestSQLite_FindsWhatExpiredThroughAnIndex(t *testing.T) {
	file := filepath.Join(t.TempDir(), "records.db")
	_, db := openSQLite(t, file)
	pool, h := hookedSQLite(t, file)
	s := openOn(t, pool)
	r, err := s.Claim(t.Context(), claimOf("k"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Settle(t.Context(), holdOf(r), completed); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("UPDATE onlyonce_records SET expires_at = 1"); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Purge(t.Context(), 100); n != 1 || err != nil {
		t.Fatalf("%d records were purged, error %v", n, err)
	}
	found := 0
	for _, text := range h.statements("expires_at <= ?") {
		found++
		plan := sqlitePlan(t, db, text, 1, 100)
		if !strings.Contains(plan, "INDEX onlyonce_records_expires_at (expires_at<?)") {
			t.Errorf("the index is not used by %s\n%s", text, plan)
		}
		if strings.Contains(plan, "SCAN onlyonce_records") || strings.Contains(plan, "TEMP B-TREE") {
			t.Errorf("what did not expire is read or sorted by %s\n%s", text, plan)
		}
	}
	if found != 2 { // the query for the floor, and the query for the rows to delete
		t.Errorf("%d statements look for what expired", found)
	}
}
