package integration

import (
	"database/sql"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// unknownRecord makes a record with an unknown outcome.
func unknownRecord(t *testing.T, s onlyonce.Store) onlyonce.Record {
	t.Helper()
	id := onlyonce.ID{Tenant: "acme", Operation: "op", Key: "k"}
	r, err := s.Claim(t.Context(), onlyonce.Claim{ID: id, Owner: "0123456789abcdef", SkipFingerprint: true, Lease: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Settle(t.Context(), onlyonce.Hold{ID: id, Owner: r.Owner, Fence: r.Fence}, onlyonce.Settlement{State: onlyonce.StateUnknown}); err != nil {
		t.Fatal(err)
	}
	if r, err = s.Lookup(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	return r
}

var byHand = onlyonce.Decision{Actor: "ada", Reason: "ticket 7"}

func TestAudit_WithoutAnEntryNothingIsDecided(t *testing.T) {
	onEmptyDatabases(t, func(t *testing.T, _ string, newDB func() *sql.DB) {
		db := newDB()
		s, _ := openMigrated(t, db)
		r := unknownRecord(t, s)
		if _, err := db.Exec("ALTER TABLE onlyonce_audit RENAME TO away"); err != nil {
			t.Fatal(err)
		}
		for _, st := range []onlyonce.Settlement{{}, {State: onlyonce.StateCompleted}} {
			if err := s.ResolveAudited(t.Context(), r, st, byHand); err == nil {
				t.Error("a decision took effect that could not be recorded")
			}
			if now, err := s.Lookup(t.Context(), r.ID); err != nil || !reflect.DeepEqual(now, r) {
				t.Errorf("the record is %+v, want %+v; error %v", now, r, err)
			}
		}
		if _, err := db.Exec("ALTER TABLE away RENAME TO onlyonce_audit"); err != nil {
			t.Fatal(err)
		}
		if err := s.ResolveAudited(t.Context(), r, onlyonce.Settlement{State: onlyonce.StateCompleted}, byHand); err != nil {
			t.Error(err)
		}
		if entries, err := s.AuditTrail(t.Context(), r.ID); len(entries) != 1 || err != nil {
			t.Errorf("%+v, %v", entries, err)
		}
	})
}

func TestAudit_TheDatabaseRejectsChangesOfEntries(t *testing.T) {
	onEmptyDatabases(t, func(t *testing.T, engine string, newDB func() *sql.DB) {
		if engine == "mysql" {
			t.Skip("creating a trigger needs more privileges than migrating: there, grants enforce it")
		}
		db := newDB()
		s, _ := openMigrated(t, db)
		r := unknownRecord(t, s)
		if err := s.ResolveAudited(t.Context(), r, onlyonce.Settlement{}, byHand); err != nil {
			t.Fatal(err)
		}
		changes := []string{"UPDATE onlyonce_audit SET actor = 'eve'", "DELETE FROM onlyonce_audit"}
		switch engine {
		case "postgres":
			changes = append(changes, "TRUNCATE onlyonce_audit")
		case "sqlite":
			changes = append(changes, "REPLACE INTO onlyonce_audit SELECT * FROM onlyonce_audit")
		}
		for _, change := range changes {
			if _, err := db.Exec(change); err == nil || !strings.Contains(err.Error(), "rows of onlyonce_audit are never") {
				t.Errorf("%s: %v", change, err)
			}
		}
		if entries, err := s.AuditTrail(t.Context(), r.ID); len(entries) != 1 || err != nil || entries[0].Actor != "ada" {
			t.Errorf("%+v, %v", entries, err)
		}
	})
}
