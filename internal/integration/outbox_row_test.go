package integration

import (
	"context"
	"database/sql"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// onEveryEngine calls f with a store on SQLite, PostgreSQL and MySQL or MariaDB.
func onEveryEngine(t *testing.T, f func(t *testing.T, engine string, s *sqlstore.Store, db *sql.DB)) {
	t.Run("sqlite", func(t *testing.T) {
		s, db := newSQLite(t)
		f(t, "sqlite", s, db)
	})
	t.Run("postgres", func(t *testing.T) {
		s, db := newPostgresSchema(t).open(t)
		f(t, "postgres", s, db)
	})
	t.Run("mysql", func(t *testing.T) {
		s, db := newMySQLDatabase(t).open(t)
		f(t, "mysql", s, db)
	})
}

// unpublishable are the changes of a row of the outbox after which no relay can
// publish it; by an engine's name if only that engine can hold it.
var unpublishable = map[string]string{
	"headers that are not JSON":       "UPDATE onlyonce_outbox SET headers = 'X-A: b'",
	"headers that are a list":         "UPDATE onlyonce_outbox SET headers = '[]'",
	"a header that is a number":       `UPDATE onlyonce_outbox SET headers = '{"X-A":1}'`,
	"empty headers":                   "UPDATE onlyonce_outbox SET headers = ''",
	"a header of two lines":           `UPDATE onlyonce_outbox SET headers = '{"X-A":"b\u000d\u000aX-C: d"}'`,
	"no topic":                        "UPDATE onlyonce_outbox SET topic = ''",
	"no id":                           "UPDATE onlyonce_outbox SET id = ''",
	"no state":                        "UPDATE onlyonce_outbox SET state = ''",
	"a state in capitals":             "UPDATE onlyonce_outbox SET state = 'WAITING'",
	"a state before parked":           "UPDATE onlyonce_outbox SET state = 'lost'",
	"a state before published":        "UPDATE onlyonce_outbox SET state = 'postponed', due_at = -1",
	"a state before waiting":          "UPDATE onlyonce_outbox SET state = 'sent', due_at = 4000000000000000",
	"a state that begins alike":       "UPDATE onlyonce_outbox SET state = 'waiting ', error = 'x'",
	"a state after all others":        "UPDATE onlyonce_outbox SET state = 'zz'",
	"sqlite: a topic that is no text": "UPDATE onlyonce_outbox SET topic = CAST(x'61ff' AS TEXT)",
	"mysql: a topic that is no text":  "UPDATE onlyonce_outbox SET topic = x'61ff'",
}

func TestOutboxRow_ARowOfTheOutboxThatCanNotBePublishedIsParkedAndKeepsNothingUp(t *testing.T) {
	needs.Time(t)
	onEveryEngine(t, func(t *testing.T, engine string, s *sqlstore.Store, db *sql.DB) {
		for name, damage := range unpublishable {
			if only, _, found := strings.Cut(name, ": "); found && only != engine {
				continue
			}
			if engine == "mysql" { // which takes a backslash for an escape
				damage = strings.ReplaceAll(damage, `\`, `\\`)
			}
			t.Run(name, func(t *testing.T) {
				emptied(t, db, "onlyonce_outbox")
				appendOne(t, s, db, outbox.Message{Topic: "t", Key: "k", Payload: []byte("bad")})
				if _, err := db.Exec(damage); err != nil {
					t.Fatal(err)
				}
				appendOne(t, s, db, outbox.Message{Topic: "t", Key: "k", Payload: []byte("after")})
				appendOne(t, s, db, outbox.Message{Topic: "t", Payload: []byte("good")})
				published := relayUntil(t, s.Outbox(), func(lag outbox.Lag) bool { return lag.Parked == 1 && lag.Waiting == 1 })
				if !slices.Equal(published, []string{"good"}) {
					t.Errorf("published %q", published)
				}
				parked, err := s.Outbox().Parked(t.Context(), 0, 10)
				if err != nil || len(parked) != 1 || string(parked[0].Payload) != "bad" || parked[0].Attempts != 0 || parked[0].Error == "" {
					t.Fatalf("parked %+v, %v", parked, err)
				}
				if n, err := s.Outbox().Discard(t.Context(), parked[0].Seq); n != 1 || err != nil {
					t.Fatal(n, err)
				}
				if published := relayUntil(t, s.Outbox(), func(lag outbox.Lag) bool { return lag == outbox.Lag{} }); !slices.Equal(published, []string{"after"}) {
					t.Errorf("then published %q", published)
				}
			})
		}
	})
}

func TestOutboxRow_AMessageThatAClockSetBackLeftHeldForGoodIsLeased(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, _ string, s *sqlstore.Store, db *sql.DB) {
		q := s.Outbox()
		for _, damage := range []string{"", ", owner = NULL"} {
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := q.Append(t.Context(), tx, outbox.Message{Topic: "t", Key: "k"}); err != nil {
				t.Fatal(err)
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			if list, err := q.Lease(t.Context(), "one", outbox.MaxHeld, 10); err != nil || len(list) != 1 {
				t.Fatalf("%v, %v", list, err)
			}
			if list, err := q.Lease(t.Context(), "two", time.Minute, 10); err != nil || len(list) != 0 {
				t.Errorf("while it is held as long as it may be: %v, %v", list, err)
			}
			if _, err := db.Exec("UPDATE onlyonce_outbox SET due_at = due_at + 25200000000" + damage); err != nil {
				t.Fatal(err)
			}
			list, err := q.Lease(t.Context(), "two", time.Minute, 10)
			if err != nil || len(list) != 1 {
				t.Fatalf("%v, %v", list, err)
			}
			if err := q.Settle(t.Context(), "two", []outbox.Verdict{{Seq: list[0].Seq, State: outbox.StatePublished}}); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestOutboxRow_ARowOfTheOutboxWithExtremeNumbersIsPublishedAndListed(t *testing.T) {
	needs.Time(t)
	onEveryEngine(t, func(t *testing.T, engine string, s *sqlstore.Store, db *sql.DB) {
		numbers := []int64{math.MinInt32, -1, math.MaxInt32}
		if engine == "sqlite" {
			numbers = append(numbers, math.MinInt64, math.MaxInt64)
		}
		mark := "?"
		if engine == "postgres" {
			mark = "$1"
		}
		for column, values := range map[string][]int64{
			"attempts":   numbers,
			"created_at": {math.MinInt64, -1, 0, math.MaxInt64, time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()},
			"due_at":     {math.MinInt64, math.MaxInt64},
			"seq":        {math.MinInt64 + 1, -1, 0},
		} {
			if column == "seq" && engine == "postgres" { // which gives them itself, always
				continue
			}
			for _, n := range values {
				emptied(t, db, "onlyonce_outbox")
				appendOne(t, s, db, outbox.Message{Topic: "t", Key: "k", Payload: []byte("a")})
				if _, err := db.Exec("UPDATE onlyonce_outbox SET "+column+" = "+mark, n); err != nil {
					t.Fatalf("%s %d: %v", column, n, err)
				}
				failing := outbox.PublisherFunc(func(context.Context, []outbox.Message) []error { return []error{context.Canceled} })
				relay(t, s.Outbox(), failing, outbox.Config{MaxAttempts: 1}, func(lag outbox.Lag) bool { return lag.Parked == 1 })
				parked, err := s.Outbox().Parked(t.Context(), math.MinInt64, 10)
				if err != nil || len(parked) != 1 || parked[0].Attempts < 1 || parked[0].Corrupt {
					t.Fatalf("%s %d: parked %+v, %v", column, n, parked, err)
				}
				if _, err := json.Marshal(parked); err != nil {
					t.Errorf("%s %d: %v", column, n, err)
				}
				if n, err := s.Outbox().Requeue(t.Context(), parked[0].Seq); n != 1 || err != nil {
					t.Fatal(n, err)
				}
				if lag, err := s.Outbox().Lag(t.Context()); err != nil || lag.Oldest < 0 {
					t.Errorf("%s %d: the lag is %+v, %v", column, n, lag, err)
				}
				if published := relayUntil(t, s.Outbox(), func(lag outbox.Lag) bool { return lag == outbox.Lag{} }); !slices.Equal(published, []string{"a"}) {
					t.Errorf("%s %d: published %q", column, n, published)
				}
			}
		}
	})
}

// relayUntil runs a relay until the lag is as wanted, and returns the payloads that it
// published.
func relayUntil(t *testing.T, queue outbox.Queue, wanted func(outbox.Lag) bool) (published []string) {
	t.Helper()
	var mu sync.Mutex
	relay(t, queue, outbox.PublisherFunc(func(_ context.Context, messages []outbox.Message) []error {
		mu.Lock()
		defer mu.Unlock()
		for _, m := range messages {
			published = append(published, string(m.Payload))
		}
		return nil
	}), outbox.Config{}, wanted)
	return published
}

func relay(t *testing.T, queue outbox.Queue, to outbox.Publisher, cfg outbox.Config, wanted func(outbox.Lag) bool) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { outbox.NewRelay(queue, to, cfg).Run(ctx) })
	defer running.Wait()
	defer stop()
	for end := time.Now().Add(answerLimit); ; time.Sleep(5 * time.Millisecond) {
		lag, err := queue.Lag(t.Context())
		switch {
		case err != nil:
			t.Fatal(err)
		case wanted(lag):
			return
		case time.Now().After(end):
			t.Fatalf("the lag is still %+v", lag)
		}
	}
}
