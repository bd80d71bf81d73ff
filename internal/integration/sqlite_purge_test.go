package integration

import (
	"bytes"
	"database/sql"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
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

// SQLite moves a row to another page only when it deletes or inserts one: otherwise, each page would keep the
// space of the results that it has lost.
func TestSQLite_FreesTheSpaceOfResultsWhoseIDsAreRemembered(t *testing.T) {
	s, db := newSQLite(t)
	pages := func() (n int) {
		t.Helper()
		if err := db.QueryRow("SELECT page_count - freelist_count FROM pragma_page_count, pragma_freelist_count").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	const commands = 256
	empty := pages()
	made := onlyonce.Settlement{
		State: onlyonce.StateCompleted, Keep: time.Hour,
		Result: onlyonce.Result{Body: bytes.Repeat([]byte("a"), 1000), Keep: time.Millisecond}, // three rows a page
	}
	var settled sync.WaitGroup
	for i := range commands {
		settled.Go(func() {
			r, err := s.Claim(t.Context(), claimOf(strconv.Itoa(i)))
			if err == nil {
				err = s.Settle(t.Context(), holdOf(r), made)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	settled.Wait()
	before := pages() - empty
	for forgotten := 0; forgotten < commands; {
		n, err := s.Purge(t.Context(), commands)
		if forgotten += n; err != nil {
			t.Fatal(err)
		}
	}
	if after := pages() - empty; after > before/3 {
		t.Errorf("%d results took %d pages, and their IDs take %d", commands, before, after)
	}
	for i := range commands {
		c := claimOf(strconv.Itoa(i))
		if r, err := s.Claim(t.Context(), c); err != nil || r.State != onlyonce.StateRemembered {
			t.Fatalf("a claim of command %d got the state %q and the error %v", i, r.State, err)
		}
	}
}
