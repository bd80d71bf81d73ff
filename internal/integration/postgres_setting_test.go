package integration

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

func TestPostgreSQL_ACommitWaitsForTheDiskWhateverThePoolSays(t *testing.T) {
	s, db := newPostgresSchema(t).open(t, "synchronous_commit=off")
	for name, f := range map[string]func(in onlyonce.Store) error{
		"claim": func(in onlyonce.Store) error {
			_, err := in.Claim(t.Context(), serverClaim("new"))
			return err
		},
		"settle": func(in onlyonce.Store) error {
			c := serverClaim("settled")
			r, err := s.Claim(t.Context(), c)
			if err != nil {
				return err
			}
			return in.Settle(t.Context(), onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}, done("made"))
		},
		"renew": func(in onlyonce.Store) error {
			c := serverClaim("renewed")
			r, err := s.Claim(t.Context(), c)
			if err != nil {
				return err
			}
			return in.Renew(t.Context(), onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}, time.Minute, map[string][]byte{"charge": []byte("1")})
		},
	} {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := f(s.WithTx(tx)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var setting string
		if err := tx.QueryRow("SHOW synchronous_commit").Scan(&setting); err != nil || setting != "on" {
			t.Errorf("the transaction of a %s has synchronous_commit %s and error %v", name, setting, err)
		}
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
	}
	_, err := s.RunTx(t.Context(), serverClaim("run"), func(ctx context.Context, tx *sql.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
		_, err := tx.ExecContext(ctx, `
CREATE FUNCTION seen() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO settings VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$;
CREATE TABLE settings (at_commit text);
CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON onlyonce_records DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION seen()`)
		return done("made"), err
	})
	if err != nil {
		t.Fatal(err)
	}
	var setting string
	if err := db.QueryRow("SELECT at_commit FROM settings").Scan(&setting); err != nil || setting != "on" {
		t.Errorf("RunTx committed with synchronous_commit %q and error %v", setting, err)
	}
}

func TestPostgreSQL_ClaimsThatLoseLeaveNothingToVacuum(t *testing.T) {
	s, db := newPostgresSchema(t).open(t)
	if _, err := s.Claim(t.Context(), serverClaim("k")); err != nil {
		t.Fatal(err)
	}
	size := func() (pages int64) {
		if err := db.QueryRow("SELECT pg_relation_size('onlyonce_records')").Scan(&pages); err != nil {
			t.Fatal(err)
		}
		return pages
	}
	before := size()
	other := openOn(t, db)
	for range 500 {
		if r, err := other.Claim(t.Context(), serverClaim("k")); err != nil || r.State != onlyonce.StateProcessing {
			t.Fatalf("claim got %+v and error %v", r, err)
		}
	}
	if after := size(); after != before {
		t.Errorf("the table grew from %d to %d bytes", before, after)
	}
}

func TestPostgreSQL_ConnectionsThatConvertTextsAreRejected(t *testing.T) {
	schema := newPostgresSchema(t)
	schema.open(t)
	for encoding, rejected := range map[string]bool{"LATIN1": true, "WIN1252": true, "SQL_ASCII": false, "UTF8": false} {
		s, err := sqlstore.Open(t.Context(), schema.pool(t, "client_encoding="+encoding), sqlstore.Config{PurgeEvery: sqlstore.NeverPurge})
		if rejected != (err != nil && strings.Contains(err.Error(), "client_encoding is "+encoding)) {
			t.Errorf("open with client_encoding %s got error %v", encoding, err)
		}
		if err == nil {
			s.Close()
		}
	}
}

func TestPostgreSQL_ARoleThatMayOnlyReadLooksRecordsUp(t *testing.T) {
	schema := newPostgresSchema(t)
	s, db := schema.open(t)
	c := serverClaim("settled")
	r, err := s.Claim(t.Context(), c)
	if err == nil {
		err = s.Settle(t.Context(), onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}, done("made"))
	}
	if err != nil {
		t.Fatal(err)
	}
	role := "reader_of_" + schema.name
	makeFor(t, "pgx", schema.dsn, "ROLE "+role, "")
	for _, grant := range []string{"GRANT USAGE ON SCHEMA " + schema.name, "GRANT SELECT ON ALL TABLES IN SCHEMA " + schema.name} {
		if _, err := db.Exec(grant + " TO " + role); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if _, err := db.Exec("DROP OWNED BY " + role); err != nil {
			t.Error(err)
		}
	})
	p := openPgxstore(t, schema.with(t, "role="+role))
	for name, reader := range map[string]onlyonce.Store{
		"sqlstore": openOn(t, schema.pool(t, "role="+role)),
		"pgxstore": p,
	} {
		if r, err := reader.Lookup(t.Context(), c.ID); err != nil || string(r.Result.Body) != "made" {
			t.Errorf("%s: lookup got %+v, error %v", name, r, err)
		}
	}
}

// A message must not be published whose transaction a crash can still undo. And PostgreSQL compares
// each message with each of very many keys if it expects a table of them not to fit into work_mem.
func TestPostgreSQL_ALeaseOfMessagesWaitsForTheDiskAndHasEnoughMemoryWhateverThePoolSays(t *testing.T) {
	s, db := newPostgresSchema(t).open(t, "synchronous_commit=off", "work_mem=64kB")
	_, err := db.Exec(`
CREATE FUNCTION seen() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO settings VALUES (current_setting('synchronous_commit'), current_setting('work_mem')); RETURN NULL; END $$;
CREATE TABLE settings (synchronous_commit text, work_mem text);
CREATE CONSTRAINT TRIGGER at_commit AFTER UPDATE ON onlyonce_outbox DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION seen()`)
	if err != nil {
		t.Fatal(err)
	}
	appendOne(t, s, db, outbox.Message{Topic: "t"})
	if list, err := s.Outbox().Lease(t.Context(), "owner", time.Minute, 1); err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	var commit, memory string
	if err := db.QueryRow("SELECT synchronous_commit, work_mem FROM settings").Scan(&commit, &memory); err != nil || commit != "on" || memory != "256MB" {
		t.Errorf("the lease was committed with synchronous_commit %q, work_mem %q and error %v", commit, memory, err)
	}
}

// Logical replication copies messages and not the sequence of their numbers. A message that is appended at the new
// place would come before older ones of its key, or have the number of one of them.
func TestPostgreSQL_AnOutboxWhoseSequenceIsBehindItsMessagesIsRejected(t *testing.T) {
	schema := newPostgresSchema(t)
	s, db := schema.open(t)
	for range 3 {
		appendOne(t, s, db, outbox.Message{Topic: "test"})
	}
	if found, err := s.Diagnose(t.Context()); err != nil || len(found) != 0 {
		t.Errorf("before, the findings are %+v, %v", found, err)
	}
	execute(t, db, "ALTER TABLE onlyonce_outbox ALTER COLUMN seq RESTART")
	found, err := s.Diagnose(t.Context())
	if err != nil || len(found) != 1 || found[0].Name != "outbox-sequence" {
		t.Fatalf("the findings are %+v, %v", found, err)
	}
	if _, err := sqlstore.Open(t.Context(), db, sqlstore.Config{}); err == nil || !strings.Contains(err.Error(), found[0].Fix) {
		t.Errorf("open returned %v", err)
	}
	accepting, err := sqlstore.Open(t.Context(), db, sqlstore.Config{AcceptRisks: []string{"outbox-sequence"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { accepting.Close() })
	execute(t, db, "ALTER TABLE onlyonce_outbox ALTER COLUMN seq RESTART WITH 3") // the number of the last message
	if again, err := s.Diagnose(t.Context()); err != nil || len(again) != 1 {
		t.Errorf("with the number of a message as the next one, the findings are %+v, %v", again, err)
	}
	execute(t, db, "ALTER TABLE onlyonce_outbox ALTER COLUMN seq RESTART WITH 4")
	openOn(t, db)
	execute(t, db, found[0].Fix)
	openOn(t, db)
	appendOne(t, s, db, outbox.Message{Topic: "test", Payload: []byte("last")})
	if list, err := s.Outbox().Lease(t.Context(), "relay", time.Minute, 10); err != nil || len(list) != 4 || string(list[3].Payload) != "last" {
		t.Errorf("leased %+v, %v", list, err)
	}
}
