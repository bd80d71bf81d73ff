package integration

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/outbox"
)

// A lease reads the waiting messages in their order. Those that it cannot lease must not stay
// among them: it would take the longer, the more there are.
func TestOutboxQueue_ALeaseDoesNotPassOverVeryManyMessagesBehindAParkedOne(t *testing.T) {
	needs.Time(t)
	test := func(t *testing.T, db *sql.DB) {
		q := openOn(t, db).Outbox()
		lease := func(limit int) []outbox.Entry {
			t.Helper()
			list, err := q.Lease(t.Context(), "owner", time.Hour, limit)
			if err != nil {
				t.Fatal(err)
			}
			return list
		}
		add := func(key string, n int) {
			t.Helper()
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			for i := range n {
				if err := q.Append(t.Context(), tx, outbox.Message{Topic: "test", Key: key, Payload: fmt.Append(nil, i)}); err != nil {
					t.Fatal(err)
				}
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
		}
		waiting := func() (n int) {
			t.Helper()
			if err := db.QueryRow("SELECT count(*) FROM onlyonce_outbox WHERE state = 'waiting'").Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		add("parked", 1300)
		add("held", 1300)
		list := lease(1)
		if err := q.Settle(t.Context(), "owner", []outbox.Verdict{{Seq: list[0].Seq, State: outbox.StateParked}}); err != nil {
			t.Fatal(err)
		}
		if list = lease(1); list[0].Key != "held" {
			t.Fatalf("leased %+v", list)
		}
		for range 2 {
			if list := lease(10); len(list) != 0 {
				t.Fatalf("leased %+v", list)
			}
		}
		add("other", 1)
		if list := lease(10); len(list) != 1 || waiting() > 500 {
			t.Errorf("leased %d messages, and the next lease passes over %d", len(list), waiting())
		}
		if lag, err := q.Lag(t.Context()); err != nil || lag.Waiting != 2600 || lag.Parked != 1 || lag.Oldest <= 0 {
			t.Errorf("the lag is %+v, %v", lag, err)
		}
	}
	t.Run("SQLite", func(t *testing.T) {
		_, db := newSQLite(t)
		test(t, db)
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		_, db := newPostgresSchema(t).open(t)
		test(t, db)
	})
	t.Run("MySQL", func(t *testing.T) {
		t.Parallel()
		_, db := newMySQLDatabase(t).open(t)
		test(t, db)
	})
}
