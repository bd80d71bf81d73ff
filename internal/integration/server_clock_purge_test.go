package integration

import (
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// A claim reads the floor and then inserts its row. Here the server is held up
// between the two, while a row with a fence of the future is purged.
func TestServerClock_APurgeWaitsForClaimsThatReadTheOldFloor(t *testing.T) {
	for name, open := range map[string]func(t *testing.T, schema postgresSchema, settings ...string) onlyonce.Store{
		"sqlstore": func(t *testing.T, schema postgresSchema, settings ...string) onlyonce.Store {
			return openOn(t, schema.pool(t, settings...))
		},
		"pgxstore": func(t *testing.T, schema postgresSchema, settings ...string) onlyonce.Store {
			s, _ := openPgx(t, ownDatabase{driver: "pgx", dsn: schema.with(t, settings...)})
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			schema := newPostgresSchema(t)
			janitor, db := schema.open(t)
			claimer := open(t, schema, "application_name="+schema.name)
			lock := rand.Int64()
			for _, text := range []string{
				fmt.Sprintf("CREATE FUNCTION hold_up() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(%d); RETURN NEW; END $$", lock),
				"CREATE TRIGGER hold_up BEFORE INSERT ON onlyonce_records FOR EACH ROW EXECUTE FUNCTION hold_up()",
			} {
				if _, err := db.Exec(text); err != nil {
					t.Fatal(err)
				}
			}
			for n := range 10 {
				purgeWhileHeldUp(t, janitor, claimer, db, schema.name, lock, fmt.Sprint("k", n))
			}
		})
	}
}

func purgeWhileHeldUp(t *testing.T, janitor *sqlstore.Store, claimer onlyonce.Store, db *sql.DB, name string, lock int64, key string) {
	t.Helper()
	was, err := janitor.Claim(t.Context(), serverClaim(key))
	if err == nil {
		st := done("made")
		st.Keep = time.Millisecond
		err = janitor.Settle(t.Context(), holdOf(was), st)
	}
	var ahead int64
	if err == nil {
		err = db.QueryRow("UPDATE onlyonce_records SET fence = fence + 3600000000, expires_at = 1 RETURNING fence").Scan(&ahead)
	}
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.Exec("SELECT pg_advisory_xact_lock($1)", lock); err != nil {
		t.Fatal(err)
	}
	var r onlyonce.Record
	var claimed error
	var wg sync.WaitGroup
	wg.Go(func() { r, claimed = claimer.Claim(t.Context(), serverClaim(key)) })
	for end := time.Now().Add(answerLimit); ; time.Sleep(time.Millisecond) {
		var n int
		if err := db.QueryRow("SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'", name).Scan(&n); err != nil || time.Now().After(end) {
			t.Fatalf("the claim does not wait: %v", err)
		}
		if n > 0 {
			break
		}
	}
	if n, err := janitor.Purge(t.Context(), 10); err != nil || n != 1 {
		t.Errorf("purged %d, %v", n, err)
	}
	if err := tx.Rollback(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if claimed != nil || r.State != onlyonce.StateProcessing || r.Fence <= ahead {
		t.Fatalf("after fence %d, claim got %+v and error %v", ahead, r, claimed)
	}
	if err := claimer.Settle(t.Context(), holdOf(r), onlyonce.Settlement{}); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("DELETE FROM onlyonce_records; UPDATE onlyonce_fence SET floor = 0"); err != nil {
		t.Fatal(err)
	}
}

// A claim on MySQL goes by a floor that it read a moment ago. The session's
// timestamp is the time of a clock that was set back in that moment.
func TestServerClock_AClockThatIsSetBackDuringAPurgeRepeatsNoFence(t *testing.T) {
	d := newMySQLDatabase(t)
	janitor, _ := d.open(t)
	behind := openOn(t, d.pool(t, fmt.Sprintf("timestamp=%d", time.Now().Add(-time.Hour).Unix())))
	for n := range 5 {
		key := fmt.Sprint("k", n)
		was, err := janitor.Claim(t.Context(), serverClaim(key))
		if err == nil {
			st := done("made")
			st.Keep = time.Millisecond
			err = janitor.Settle(t.Context(), holdOf(was), st)
		}
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the record expires", func() bool {
			_, err := janitor.Lookup(t.Context(), was.ID)
			return errors.Is(err, onlyonce.ErrNotFound)
		})
		if _, err := behind.Claim(t.Context(), serverClaim("warm "+key)); err != nil { // reads the floor
			t.Fatal(err)
		}
		if n, err := janitor.Purge(t.Context(), 10); err != nil || n != 1 {
			t.Errorf("purged %d, %v", n, err)
		}
		if r, err := behind.Claim(t.Context(), serverClaim(key)); err != nil || r.Fence <= was.Fence {
			t.Errorf("after fence %d, claim got %+v and error %v", was.Fence, r, err)
		}
	}
}

// On MySQL, a purge finds the rows that are due, waits, and deletes them. A command may have
// completed anew meanwhile, by a clock that was set back so far that its record counts as due.
func TestServerClock_APurgeDeletesNoRecordThatIsNewerThanTheRowItFound(t *testing.T) {
	d := newMySQLDatabase(t)
	d.open(t)
	behind := openOn(t, d.pool(t, fmt.Sprintf("timestamp=%d", time.Now().Add(-time.Hour).Unix())))
	db, h := hookedMySQL(t, d)
	janitor := openOn(t, db)
	was, err := janitor.Claim(t.Context(), serverClaim("k"))
	if err == nil {
		st := done("made")
		st.Keep = time.Millisecond
		err = janitor.Settle(t.Context(), holdOf(was), st)
	}
	if err == nil {
		_, err = db.Exec("UPDATE onlyonce_records SET expires_at = 1")
	}
	if err != nil {
		t.Fatal(err)
	}
	h.once("DELETE FROM", func() {
		again, err := behind.Claim(t.Context(), serverClaim("k"))
		if err == nil {
			st := done("made again")
			st.Keep = time.Minute
			err = behind.Settle(t.Context(), holdOf(again), st)
		}
		if err != nil {
			t.Error(err)
		}
	})
	if n, err := janitor.Purge(t.Context(), 10); err != nil || n != 0 {
		t.Errorf("purged %d, %v", n, err)
	}
	if !h.met() {
		t.Error("nothing was to be deleted")
	}
	if r, err := behind.Lookup(t.Context(), was.ID); err != nil || string(r.Result.Body) != "made again" {
		t.Errorf("the record is %+v, error %v", r, err)
	}
}
