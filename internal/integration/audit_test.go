package integration

import (
	"context"
	"database/sql"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
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

func TestAudit_ADecisionThatTheDatabaseRejectsLeavesNoEntry(t *testing.T) {
	onEmptyDatabases(t, func(t *testing.T, engine string, newDB func() *sql.DB) {
		if engine == "mysql" {
			t.Skip("creating a trigger needs more privileges than migrating")
		}
		db := newDB()
		s, _ := openMigrated(t, db)
		r := unknownRecord(t, s)
		trigger := `CREATE TRIGGER no_update BEFORE UPDATE ON onlyonce_records BEGIN SELECT RAISE(ABORT, 'no'); END;
			CREATE TRIGGER no_delete BEFORE DELETE ON onlyonce_records BEGIN SELECT RAISE(ABORT, 'no'); END`
		if engine == "postgres" {
			trigger = `CREATE FUNCTION rejected() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no''; END';
				CREATE TRIGGER rejecting BEFORE UPDATE OR DELETE ON onlyonce_records FOR EACH ROW EXECUTE FUNCTION rejected()`
		}
		if _, err := db.Exec(trigger); err != nil {
			t.Fatal(err)
		}
		for _, st := range []onlyonce.Settlement{{}, {State: onlyonce.StateCompleted}} {
			if err := s.ResolveAudited(t.Context(), r, st, byHand); err == nil {
				t.Error("a decision that the database rejects has no error")
			}
			if entries, err := s.AuditTrail(t.Context(), r.ID); len(entries) != 0 || err != nil {
				t.Errorf("the audit trail has %+v, %v", entries, err)
			}
		}
	})
}

func TestAudit_TheDatabaseRejectsChangesOfEntries(t *testing.T) {
	onEmptyDatabases(t, func(t *testing.T, engine string, newDB func() *sql.DB) {
		if engine == "mysql" {
			t.Skip("not on MySQL: creating triggers would need more privileges than migrating, so grants protect the entries there")
		}
		db := newDB()
		s, _ := openMigrated(t, db)
		r := unknownRecord(t, s)
		if err := s.ResolveAudited(t.Context(), r, onlyonce.Settlement{}, byHand); err != nil {
			t.Fatal(err)
		}
		rejectsChanges(t, db, engine, "onlyonce_audit")
		if entries, err := s.AuditTrail(t.Context(), r.ID); len(entries) != 1 || err != nil || entries[0].Actor != "ada" {
			t.Errorf("%+v, %v", entries, err)
		}
	})
}

// parkedMessage returns the number of a message that is parked in an outbox.
func parkedMessage(t *testing.T, db *sql.DB, box *sqlstore.Outbox) int64 {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(box.Append(t.Context(), tx, outbox.Message{Topic: "t", Key: "k"}), tx.Commit()); err != nil {
		t.Fatal(err)
	}
	list, err := box.Lease(t.Context(), "one", time.Minute, 1)
	if err != nil || len(list) != 1 {
		t.Fatalf("%d leased, %v", len(list), err)
	}
	if err := box.Settle(t.Context(), "one", []outbox.Verdict{{Seq: list[0].Seq, State: outbox.StateParked, Error: "no"}}); err != nil {
		t.Fatal(err)
	}
	return list[0].Seq
}

func TestAudit_WithoutAnEntryNothingIsDecidedAboutAMessage(t *testing.T) {
	onEmptyDatabases(t, func(t *testing.T, _ string, newDB func() *sql.DB) {
		db := newDB()
		s, _ := openMigrated(t, db)
		box := s.Outbox()
		seq := parkedMessage(t, db, box)
		if _, err := db.Exec("ALTER TABLE onlyonce_outbox_audit RENAME TO away"); err != nil {
			t.Fatal(err)
		}
		for _, decide := range []func(context.Context, outbox.Decision, ...int64) (int, error){box.RequeueAudited, box.DiscardAudited} {
			if n, err := decide(t.Context(), outbox.Decision(byHand), seq); err == nil {
				t.Errorf("%d decisions took effect that could not be recorded", n)
			}
		}
		if parked, err := box.Parked(t.Context(), 0, 10); err != nil || len(parked) != 1 || parked[0].Error != "no" {
			t.Errorf("%+v are parked, %v", parked, err)
		}
		if _, err := db.Exec("ALTER TABLE away RENAME TO onlyonce_outbox_audit"); err != nil {
			t.Fatal(err)
		}
		if n, err := box.DiscardAudited(t.Context(), outbox.Decision(byHand), seq); n != 1 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	})
}

// A trigger plays another client of the database, which no lock of the store keeps out.
func TestAudit_ADecisionAboutMessagesThatChangeMeanwhileChangesNothingAndBlamesNobody(t *testing.T) {
	onEmptyDatabases(t, func(t *testing.T, engine string, newDB func() *sql.DB) {
		if engine == "mysql" {
			t.Skip("creating a trigger needs more privileges than migrating")
		}
		db := newDB()
		s, _ := openMigrated(t, db)
		box := s.Outbox()
		seq := parkedMessage(t, db, box)
		trigger := "CREATE TRIGGER meanwhile AFTER INSERT ON onlyonce_outbox_audit BEGIN DELETE FROM onlyonce_outbox; END"
		if engine == "postgres" {
			trigger = `CREATE FUNCTION meanwhile() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN DELETE FROM onlyonce_outbox; RETURN NULL; END';
				CREATE TRIGGER meanwhile AFTER INSERT ON onlyonce_outbox_audit FOR EACH STATEMENT EXECUTE FUNCTION meanwhile()`
		}
		if _, err := db.Exec(trigger); err != nil {
			t.Fatal(err)
		}
		n, err := box.RequeueAudited(t.Context(), outbox.Decision(byHand), seq)
		if n != 0 || err == nil || !strings.Contains(err.Error(), "one of the messages was parked, requeued or discarded at the same time: nothing was changed") {
			t.Errorf("%d, %v", n, err)
		}
		if parked, err := box.Parked(t.Context(), 0, 10); err != nil || len(parked) != 1 {
			t.Errorf("%+v are parked, %v", parked, err)
		}
		if entries, err := box.AuditTrail(t.Context(), 0, 10); err != nil || len(entries) != 0 {
			t.Errorf("the audit trail has %+v, %v", entries, err)
		}
	})
}

func TestAudit_TheDatabaseRejectsChangesOfEntriesAboutMessages(t *testing.T) {
	onEmptyDatabases(t, func(t *testing.T, engine string, newDB func() *sql.DB) {
		if engine == "mysql" {
			t.Skip("creating a trigger needs more privileges than migrating: there, grants enforce it")
		}
		db := newDB()
		s, _ := openMigrated(t, db)
		box := s.Outbox()
		if n, err := box.DiscardAudited(t.Context(), outbox.Decision(byHand), parkedMessage(t, db, box)); n != 1 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
		rejectsChanges(t, db, engine, "onlyonce_outbox_audit")
		if entries, err := box.AuditTrail(t.Context(), 0, 10); len(entries) != 1 || err != nil || entries[0].Actor != "ada" {
			t.Errorf("%+v, %v", entries, err)
		}
	})
}

// rejectsChanges checks that rows can only be added to a table.
func rejectsChanges(t *testing.T, db *sql.DB, engine, table string) {
	t.Helper()
	changes := []string{"UPDATE " + table + " SET actor = 'eve'", "DELETE FROM " + table}
	switch engine {
	case "postgres":
		changes = append(changes, "TRUNCATE "+table)
	case "sqlite":
		changes = append(changes, "REPLACE INTO "+table+" SELECT * FROM "+table)
	}
	for _, change := range changes {
		if _, err := db.Exec(change); err == nil || !strings.Contains(err.Error(), "rows of "+table+" are never") {
			t.Errorf("%s: %v", change, err)
		}
	}
}
