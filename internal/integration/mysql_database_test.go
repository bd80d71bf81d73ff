package integration

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/outbox"
)

// The other database has the store's tables, too: what is recorded there is not found
// when the command comes again.
func TestMySQL_AFunctionThatUsesAnotherDatabaseIsRecordedInTheStores(t *testing.T) {
	here, there := newMySQLDatabase(t), newMySQLDatabase(t)
	elsewhere, other := there.open(t)
	there.tx(t, elsewhere, other)
	for name, idle := range map[string]int{"on a new connection": 0, "on one that is used again": 1} {
		t.Run(name, func(t *testing.T) {
			db := here.pool(t)
			db.SetMaxOpenConns(1)
			db.SetMaxIdleConns(idle)
			s, _ := openMigrated(t, db)
			leave := func(ctx context.Context, tx *sql.Tx) (onlyonce.Settlement, error) {
				for _, text := range []string{"USE " + there.name, "INSERT INTO own VALUES ('row')"} {
					if _, err := tx.ExecContext(ctx, text); err != nil {
						return onlyonce.Settlement{}, err
					}
				}
				return done("made"), s.Outbox().Append(ctx, tx, outbox.Message{Topic: "orders"})
			}
			claim := func(key string) (onlyonce.Claim, onlyonce.Hold) {
				c := serverClaim(name + key)
				r, err := s.Claim(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				return c, onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}
			}
			run := serverClaim(name + "run")
			if _, err := s.RunTx(t.Context(), run, func(ctx context.Context, tx *sql.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
				return leave(ctx, tx)
			}); err != nil {
				t.Error(err)
			}
			settled, hold := claim("settled") // on a connection that may still use the other database
			if err := s.SettleTx(t.Context(), hold, leave); err != nil {
				t.Error(err)
			}
			plain, hold := claim("plain")
			if err := s.Settle(t.Context(), hold, done("made")); err != nil {
				t.Error(err)
			}
			for _, c := range []onlyonce.Claim{run, settled, plain} {
				if r, err := s.Claim(t.Context(), serverClaim(c.ID.Key)); err != nil || string(r.Result.Body) != "made" {
					t.Errorf("the repeat of %q got %+v and error %v", c.ID.Key, r, err)
				}
			}
			if n, err := s.Purge(t.Context(), 10); n != 0 || err != nil {
				t.Errorf("purged %d, error %v", n, err)
			}
		})
	}
	for table, want := range map[string]int{"onlyonce_records": 0, "onlyonce_outbox": 0, "own": 4} {
		var rows int
		if err := other.QueryRow(fmt.Sprintf("SELECT count(*) FROM %s", table)).Scan(&rows); rows != want || err != nil {
			t.Errorf("the other database has %d rows in %s, want %d; error %v", rows, table, want, err)
		}
	}
}

// Diagnose reads settings that other calls use.
func TestMySQL_DiagnoseDisturbsNoCall(t *testing.T) {
	s, _ := newMySQLDatabase(t).open(t)
	crowd(8, func(i int) {
		for n := range 8 {
			if i == 0 {
				if found, err := s.Diagnose(t.Context()); len(found) > 0 || err != nil {
					t.Errorf("found %v, error %v", found, err)
				}
				continue
			}
			_, err := s.RunTx(t.Context(), serverClaim(fmt.Sprint(i, "-", n)), func(context.Context, *sql.Tx, onlyonce.Record) (onlyonce.Settlement, error) {
				return done("made"), nil
			})
			if err != nil {
				t.Error(err)
			}
		}
	})
}
