package integration

import (
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/outbox"
)

// numbers are the numbers n from 1 to 10,000, as a table.
var numbers = map[string]string{
	"PostgreSQL": "generate_series(1, 10000) AS numbers (n)",
	"MySQL":      "(SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d + 1 AS n FROM digits a, digits b, digits c, digits e) numbers",
	"SQLite":     "(WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 10000) SELECT n FROM numbers) numbers",
}

// fillOutbox adds a message in a state for each key from a number to another one, at most 10,000.
func (l lister) fillOutbox(t *testing.T, name, state, dueAt string, from, to int) {
	t.Helper()
	key, payload := "'key ' || n", "''"
	switch name {
	case "MySQL":
		key = "CONCAT('key ', n)"
	case "SQLite":
		payload = "x''"
	}
	l.exec(t, fmt.Sprintf(`INSERT INTO onlyonce_outbox (id, topic, ordering_key, tenant, headers, payload, created_at, state, due_at)
SELECT 'id', 'topic', %s, '', '{}', %s, n, '%s', %s FROM %s WHERE n BETWEEN %d AND %d ORDER BY n`, key, payload, state, dueAt, numbers[name], from, to))
}

// microsFromNow is an instant as the tables have it.
func microsFromNow(d time.Duration) string {
	return strconv.FormatInt(time.Now().Add(d).UnixMicro(), 10)
}

// rowsRead returns how many rows a server reads for a query.
func (l lister) rowsRead(t *testing.T, name string, q query) (n int64) {
	t.Helper()
	tx, err := l.db.Begin() // stays on one connection
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	before := l.rowsReadIn(t, name, tx)
	rows, err := tx.Query(q.text, q.args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, q.text)
	}
	for rows.Next() {
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return l.rowsReadIn(t, name, tx) - before
}

// rowsReadIn returns how many rows the server has read in a session or a transaction.
func (l lister) rowsReadIn(t *testing.T, name string, tx *sql.Tx) (n int64) {
	t.Helper()
	if name == "PostgreSQL" {
		if err := tx.QueryRow("SELECT coalesce(sum(seq_tup_read + idx_tup_fetch), 0) FROM pg_stat_xact_user_tables WHERE schemaname = current_schema() AND relname = 'onlyonce_outbox'").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	rows, err := tx.Query("SHOW SESSION STATUS LIKE 'Handler_read%'")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var variable string
		var value int64
		if err := rows.Scan(&variable, &value); err != nil {
			t.Fatal(err)
		}
		n += value
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return n
}

func leaseFrom(t *testing.T, q outbox.Queue, limit int) (keys []string) {
	t.Helper()
	list, err := q.Lease(t.Context(), "owner", time.Hour, limit)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		keys = append(keys, e.Key)
	}
	return keys
}

// A relay whose lease takes longer than its Config.Timeout publishes nothing.
func TestOutboxQueue_ALeaseReadsFewMessagesHoweverManyKeysAreHeld(t *testing.T) {
	onStatistics(t, leaseAmongHeld)
}

// onStatistics runs a test without and with the statistics that servers make now and then, by these
// statements.
func onStatistics(t *testing.T, test func(t *testing.T, statistics map[string]string)) {
	t.Run("without statistics", func(t *testing.T) { test(t, nil) })
	t.Run("with statistics", func(t *testing.T) {
		test(t, map[string]string{"PostgreSQL": "ANALYZE onlyonce_outbox", "MySQL": "ANALYZE TABLE onlyonce_outbox"})
	})
}

func leaseAmongHeld(t *testing.T, statistics map[string]string) {
	onNoted(t, func(t *testing.T, name string, l lister) {
		l.fillOutbox(t, name, "held", microsFromNow(time.Hour), 1, 9_900)
		l.fillOutbox(t, name, "waiting", "0", 1, 600)
		l.fillOutbox(t, name, "waiting", "0", 9_901, 9_910)
		if statement := statistics[name]; statement != "" {
			l.exec(t, statement)
		}
		q := l.store.Outbox()
		l.hook.queries()
		var leased []string
		for range 4 { // the second one blocks the messages that wait for others
			leased = append(leased, leaseFrom(t, q, 5)...)
		}
		if len(leased) != 10 || leased[0] != "key 9901" {
			t.Errorf("leased %q", leased)
		}
		sent := l.hook.queries()
		if name == "SQLite" {
			for _, text := range l.hook.statements("onlyonce_outbox") {
				sent = append(sent, query{text, make([]any, strings.Count(text, "?"))})
			}
		}
		byKey := make(map[string]bool)
		for _, q := range sent {
			searched := strings.Contains(q.text, "h.ordering_key = o.ordering_key")
			byKey[q.text] = searched
			if name == "SQLite" {
				if plan := l.explain(t, name, q); searched && !strings.Contains(plan, "onlyonce_outbox_key (ordering_key=?)") {
					t.Errorf("keys are not searched for by their index:\n%s\n%s", q.text, plan)
				}
				continue
			}
			if n := l.rowsRead(t, name, q); n > 5000 {
				t.Errorf("a query reads %d messages:\n%s\n%s", n, q.text, l.explain(t, name, q))
			}
		}
		n := 0
		for _, searched := range byKey {
			if searched {
				n++
			}
		}
		if n != 4 {
			t.Errorf("%d statements search for keys", n)
		}
	})
}

// A relay renews its lease every few seconds, while very many messages may be postponed.
func TestOutboxQueue_ARenewalReadsOnlyItsOwnMessages(t *testing.T) {
	onStatistics(t, renewAmongHeld)
}

func renewAmongHeld(t *testing.T, statistics map[string]string) {
	onNoted(t, func(t *testing.T, name string, l lister) {
		for range 10 { // PostgreSQL reads all of a smaller table
			l.fillOutbox(t, name, "held", microsFromNow(time.Hour), 1, 9_990)
		}
		l.fillOutbox(t, name, "waiting", "0", 9_991, 10_000)
		if statement := statistics[name]; statement != "" {
			l.exec(t, statement)
		}
		q := l.store.Outbox()
		list, err := q.Lease(t.Context(), "owner", time.Hour, 5)
		if err != nil || len(list) != 5 {
			t.Fatalf("leased %d messages with error %v", len(list), err)
		}
		if err := q.Renew(t.Context(), "owner", time.Hour, list[0].Seq, list[4].Seq); err != nil {
			t.Fatal(err)
		}
		sent := l.hook.changes()
		for _, text := range l.hook.statements("onlyonce_outbox") {
			sent = append(sent, query{text, make([]any, strings.Count(text, "?"))})
		}
		renewals := slices.DeleteFunc(sent, func(q query) bool {
			return !strings.Contains(q.text, "SET due_at") && !strings.Contains(q.text, "SET o.due_at")
		})
		if len(renewals) != 1 {
			t.Fatalf("sent %+v", renewals)
		}
		if name == "SQLite" {
			if plan := l.explain(t, name, renewals[0]); !strings.Contains(plan, "SEARCH onlyonce_outbox USING INTEGER PRIMARY KEY") {
				t.Error(plan)
			}
		} else if n := l.rowsRead(t, name, renewals[0]); n > 100 {
			t.Errorf("a renewal of 2 messages reads %d\n%s", n, l.explain(t, name, renewals[0]))
		}
	})
}

// An idle relay looks for messages several times a second, while very many may be postponed or kept.
func TestOutboxQueue_MessagesThatAreNotDueAreNotRead(t *testing.T) {
	onStatistics(t, pollAmongUndue)
}

func pollAmongUndue(t *testing.T, statistics map[string]string) {
	onNoted(t, func(t *testing.T, name string, l lister) {
		for range 2 {
			l.fillOutbox(t, name, "held", microsFromNow(time.Hour), 1, 9_990)
			l.fillOutbox(t, name, "published", microsFromNow(time.Hour), 1, 10_000)
		}
		for range 2 {
			l.fillOutbox(t, name, "published", microsFromNow(-time.Hour), 1, 10_000)
		}
		if statement := statistics[name]; statement != "" {
			l.exec(t, statement)
		}
		q := l.store.Outbox()
		if keys := leaseFrom(t, q, 10); len(keys) != 0 {
			t.Errorf("leased %q", keys)
		}
		l.fillOutbox(t, name, "waiting", "0", 9_991, 10_000)
		if keys := leaseFrom(t, q, 10); len(keys) != 10 {
			t.Errorf("leased %q", keys)
		}
		if n, err := q.Purge(t.Context(), 10); err != nil || n != 10 {
			t.Errorf("purged %d messages with error %v", n, err)
		}
		if name == "SQLite" {
			for _, text := range l.hook.statements("onlyonce_outbox") {
				plan := l.explain(t, name, query{text, make([]any, strings.Count(text, "?"))})
				if strings.Contains(text, "due_at <= ") && !strings.Contains(plan, "onlyonce_outbox_due (state=? AND due_at<?)") {
					t.Errorf("%s\n%s", text, plan)
				}
				if strings.Contains(text, "DELETE") && !strings.Contains(plan, "SEARCH onlyonce_outbox USING INTEGER PRIMARY KEY") {
					t.Errorf("%s\n%s", text, plan)
				}
			}
			return
		}
		sent := append(l.hook.queries(), l.hook.changes()...)
		read := 0
		for _, q := range sent {
			if !strings.Contains(q.text, "due_at <= ") {
				continue
			}
			read++
			if n := l.rowsRead(t, name, q); n > 1000 {
				t.Errorf("a statement reads %d messages:\n%s\n%s", n, q.text, l.explain(t, name, q))
			}
		}
		if read != 4 {
			t.Errorf("%d statements look for messages that are due, and not the two polls, the lapse and the purge", read)
		}
	})
}

func TestOutboxQueue_ALeaseReturnsALimitedNumberOfMessagesWhoseLeaseHasLapsed(t *testing.T) {
	onNoted(t, func(t *testing.T, name string, l lister) {
		lapsed := microsFromNow(-time.Hour)
		l.fillOutbox(t, name, "held", lapsed, 1, 10_000)
		l.fillOutbox(t, name, "held", lapsed, 1, 2_000)
		q := l.store.Outbox()
		if keys := leaseFrom(t, q, 1); len(keys) != 1 || keys[0] != "key 2001" {
			t.Errorf("leased %q, and key 2001 is the first of which no message is held", keys)
		}
		var held int
		if err := l.db.QueryRow("SELECT count(*) FROM onlyonce_outbox WHERE state = 'held'").Scan(&held); err != nil || held != 2_001 {
			t.Errorf("%d messages are held, with error %v", held, err)
		}
		if keys := leaseFrom(t, q, 1); len(keys) != 1 || keys[0] != "key 1" {
			t.Errorf("leased %q", keys)
		}
	})
}

func TestOutboxQueue_ALeaseFindsAKeyAmongVeryManyThatAreBlocked(t *testing.T) {
	onNoted(t, func(t *testing.T, name string, l lister) {
		l.fillOutbox(t, name, "held", microsFromNow(time.Hour), 1, 10_000)
		l.fillOutbox(t, name, "first", "n", 1, 10_000)
		q := l.store.Outbox()
		for _, key := range []string{"key 9000", "key 1", "key 5000", "key 5001"} {
			l.exec(t, fmt.Sprintf("DELETE FROM onlyonce_outbox WHERE state = 'held' AND ordering_key = '%s'", key))
			found := 0
			for range 3 { // 5,000 keys each, and the third begins again
				for _, leased := range leaseFrom(t, q, 5) {
					if found++; leased != key {
						t.Errorf("leased %q, want %q", leased, key)
					}
				}
			}
			if found != 1 {
				t.Errorf("leased %d messages of %q", found, key)
			}
		}
	})
}

// PostgreSQL knows neither how long a list of numbers is, nor how long it takes to search an index for
// each of them that does not begin with the number.
func TestOutboxQueue_PostgreSQLFindsMessagesByTheIndexOfTheirNumbers(t *testing.T) {
	schema := newPostgresSchema(t)
	_, db := schema.open(t)
	pool, h := hookedPostgres(t, schema)
	l := lister{openOn(t, pool), db, h}
	const name = "PostgreSQL"
	l.fillOutbox(t, name, "waiting", "0", 1, 2_000)
	l.fillOutbox(t, name, "held", microsFromNow(-time.Hour), 2_001, 4_000)
	l.exec(t, "ANALYZE onlyonce_outbox")
	q := l.store.Outbox()
	list, err := q.Lease(t.Context(), "owner", time.Hour, 4)
	if err != nil || len(list) != 4 {
		t.Fatalf("leased %d messages with error %v", len(list), err)
	}
	verdicts := []outbox.Verdict{
		{Seq: list[0].Seq, State: outbox.StatePublished},
		{Seq: list[1].Seq, State: outbox.StatePublished, After: time.Nanosecond},
		{Seq: list[2].Seq, State: outbox.StateParked},
		{Seq: list[3].Seq, State: outbox.StateWaiting},
	}
	if err := q.Renew(t.Context(), "owner", time.Hour, list[0].Seq); err != nil {
		t.Fatal(err)
	}
	if err := q.Settle(t.Context(), "owner", verdicts); err != nil {
		t.Fatal(err)
	}
	if n, err := q.Requeue(t.Context(), list[2].Seq); err != nil || n != 1 {
		t.Fatalf("requeued %d messages with error %v", n, err)
	}
	if n, err := q.Discard(t.Context(), list[2].Seq); err != nil || n != 0 {
		t.Fatalf("discarded %d messages with error %v", n, err)
	}
	if n, err := q.Purge(t.Context(), 10); err != nil || n != 1 {
		t.Fatalf("purged %d messages with error %v", n, err)
	}
	found := 0
	for _, change := range h.changes() {
		if !strings.Contains(change.text, "onlyonce_outbox") {
			continue
		}
		found++
		if plan := l.explain(t, name, change); strings.Contains(plan, "seq = ANY") {
			t.Errorf("%s\n%s", change.text, plan)
		}
	}
	if found != 10 { // the lapse, the lease, the renewal, four verdicts, and the last three calls
		t.Errorf("%d statements have changed messages", found)
	}
}
