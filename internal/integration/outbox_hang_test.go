package integration

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/outbox"
)

// A relay may be stopped, or its machine may disappear, in the middle of a lease. The server
// would not notice for hours.
func TestOutboxQueue_ARelayThatHangsInALeaseDoesNotKeepOthersFromTheQueue(t *testing.T) {
	needs.Time(t)
	test := func(t *testing.T, db, hooked *sql.DB, h *hook) {
		s := openOn(t, db)
		appendOne(t, s, db, outbox.Message{Topic: "test", Key: "key", Payload: []byte("1")})
		hanging, other := openOn(t, hooked).Outbox(), s.Outbox()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		var leased []outbox.Entry
		h.once("state = 'held', ", func() {
			err := errBroken
			for err != nil && ctx.Err() == nil {
				leased, err = other.Lease(ctx, "other", time.Hour, 10)
			}
		})
		if list, err := hanging.Lease(t.Context(), "hanging", time.Hour, 10); err == nil || len(list) != 0 || !h.met() {
			t.Errorf("the relay that hung leased %d messages with error %v", len(list), err)
		}
		if len(leased) != 1 {
			t.Errorf("the other relay leased %d messages", len(leased))
		}
	}
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		schema := newPostgresSchema(t)
		_, db := schema.open(t)
		hooked, h := hookedPostgres(t, schema)
		test(t, db, hooked, h)
	})
	t.Run("MySQL", func(t *testing.T) {
		t.Parallel()
		database := newMySQLDatabase(t)
		_, db := database.open(t)
		hooked, h := hookedMySQL(t, database)
		test(t, db, hooked, h)
	})
}

func TestMySQL_ALeaseOfMessagesLeavesTheTimeoutOfASessionAsItWas(t *testing.T) {
	_, db := newMySQLDatabase(t).open(t)
	q := openOn(t, db).Outbox()
	db.SetMaxOpenConns(1)
	if _, err := db.Exec("SET SESSION wait_timeout = 1234"); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Lease(t.Context(), "owner", time.Hour, 1); err != nil {
		t.Fatal(err)
	}
	if err := q.Renew(t.Context(), "owner", time.Hour, 1); err == nil {
		t.Error("a lease of no messages was renewed")
	}
	var seconds int
	if err := db.QueryRow("SELECT @@SESSION.wait_timeout").Scan(&seconds); err != nil || seconds != 1234 {
		t.Errorf("the timeout is %d with error %v", seconds, err)
	}
}
