package integration

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
	"github.com/onlyonce-go/onlyonce/outbox"
)

func TestServerKill_AConnectionCutAtAnyByteLosesNoMessageOfTheOutbox(t *testing.T) {
	needs.Time(t)
	for name, kind := range map[string]*faults.Kind{"sqlstore on PostgreSQL": faults.PostgreSQL, "sqlstore on MariaDB": faults.MariaDB} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newOwnServer(t, kind)
			d := server.newDatabase(t)
			cutter := newCutter(t, server)
			db := d.migrated(t)
			clean := openOn(t, db).Outbox()
			through := openOn(t, d.through(server, cutter).pool(t)).Outbox()
			(&queueSweep{cutter: cutter, db: db, clean: clean, through: through, postgres: kind == faults.PostgreSQL}).run(t, queueOperations())
		})
	}
	t.Run("pgxstore", func(t *testing.T) {
		t.Parallel()
		server := newOwnServer(t, faults.PostgreSQL)
		d := server.newDatabase(t)
		cutter := newCutter(t, server)
		db := d.migrated(t)
		clean, _ := openPgx(t, d)
		through, _ := openPgx(t, d.through(server, cutter))
		(&queueSweep{cutter: cutter, db: db, clean: clean.Outbox(), through: through.Outbox(), postgres: true}).run(t, queueOperations()[:2])
	})
}

// A queueSweep cuts every operation of a queue at many places. After each, the queue has to be as
// before or as after the operation.
type queueSweep struct {
	cutter         *faults.CuttingProxy
	db             *sql.DB
	clean, through outbox.Queue // the same queue, past the cutting proxy and through it
	postgres       bool
}

// A queueOperation is called on messages that are numbered from 1.
type queueOperation struct {
	name   string
	on     []messages
	do     func(t *testing.T, q outbox.Queue) error
	halves bool // it is two transactions: the second one leases
}

// messages are messages with one key, in one state. Those that are unparked are parked until the
// ones behind them have been blocked, and then discarded.
type messages struct {
	n          int
	key, state string
	due        int64
	owner      string
}

const sweepOwner = "sixteen byte own"

func queueOperations() []queueOperation {
	lease := func(t *testing.T, q outbox.Queue) error {
		_, err := q.Lease(t.Context(), sweepOwner, time.Hour, 50)
		return err
	}
	first := make([]int64, 20)
	var verdicts []outbox.Verdict
	for i := range first {
		first[i] = int64(i) + 1
		verdicts = append(verdicts, []outbox.Verdict{
			{Seq: first[i], State: outbox.StatePublished},
			{Seq: first[i], State: outbox.StatePublished, After: time.Hour},
			{Seq: first[i], State: outbox.StateWaiting, Attempts: 1, Error: "back"},
			{Seq: first[i], State: outbox.StateWaiting, After: time.Hour, Attempts: 2, Error: "off"},
			{Seq: first[i], State: outbox.StateParked, Attempts: 3, Error: "parked"},
		}[i%5])
	}
	held := []messages{{n: 20, key: "a", state: "held", due: 1 << 60, owner: sweepOwner}, {n: 5, key: "a", state: "waiting"}}
	parked := []messages{{n: 20, key: "a", state: "parked", due: 1}, {n: 5, key: "a", state: "waiting"}}
	return []queueOperation{
		{"Lease that blocks", []messages{{n: 1, key: "a", state: "parked", due: 1}, {n: 600, key: "a", state: "waiting"}, {n: 20, key: "b", state: "waiting"}}, lease, true},
		{"Settle", held, func(t *testing.T, q outbox.Queue) error { return q.Settle(t.Context(), sweepOwner, verdicts) }, false},
		{"Lease", []messages{{n: 3, key: "a", state: "waiting"}, {n: 20, key: "b", state: "held", due: 1, owner: "another"}, {n: 40, state: "waiting"}}, lease, false},
		{"Lease that unblocks", []messages{{n: 1, key: "a", state: "unparked"}, {n: 600, key: "a", state: "waiting"}, {n: 20, key: "b", state: "waiting"}}, lease, false},
		{"Lease that parks", []messages{{n: 20, key: "a", state: "damaged"}, {n: 5, key: "a", state: "waiting"}, {n: 5, key: "b", state: "waiting"}}, lease, false},
		{"Requeue", parked, func(t *testing.T, q outbox.Queue) error {
			_, err := q.Requeue(t.Context(), first...)
			return err
		}, false},
		{"Discard", parked, func(t *testing.T, q outbox.Queue) error {
			_, err := q.Discard(t.Context(), first...)
			return err
		}, false},
		{"Purge", []messages{{n: 20, key: "a", state: "published", due: 1}, {n: 5, key: "a", state: "waiting"}}, func(t *testing.T, q outbox.Queue) error {
			_, err := q.Purge(t.Context(), 20)
			return err
		}, false},
	}
}

func (s *queueSweep) run(t *testing.T, operations []queueOperation) {
	s.exec(t, "CREATE TABLE saved AS SELECT * FROM onlyonce_outbox")
	for _, op := range operations {
		s.save(t, op)
		before := s.state(t)
		for range 2 { // the second lease finds the oldest message where the first did
			s.restore(t)
			if err := op.do(t, s.through); err != nil {
				t.Fatal(err)
			}
		}
		s.settled(t)
		after := s.state(t)
		if before == after {
			t.Fatalf("%s changes nothing", op.name)
		}
		states := []string{before, after}
		if op.halves {
			s.exec(t, "UPDATE onlyonce_outbox SET state = 'waiting', owner = NULL WHERE state = 'held'")
			states = append(states, s.state(t))
		}
		for way, direction := range faults.Directions {
			t.Run(op.name+" cut on the way "+direction, func(t *testing.T) { s.cutEverywhere(t, op, way, states) })
		}
	}
}

func (s *queueSweep) cutEverywhere(t *testing.T, op queueOperation, way int, states []string) {
	s.connect(t, op)
	s.restore(t)
	s.cutter.Count()
	if err := op.do(t, s.through); err != nil {
		t.Fatal(err)
	}
	length := s.cutter.Count()[way]
	cuts, failed := 0, 0
	found := make([]int, len(states))
	for n, after := range places(length) {
		s.restore(t)
		s.cutter.Arm(way, after, n%3)
		err := op.do(t, s.through)
		if s.cutter.Disarm() {
			cuts++
		}
		s.settled(t)
		state := s.state(t)
		at := slices.Index(states, state)
		if at < 0 || err == nil && state != states[1] {
			t.Fatalf("cut after %d bytes of %d, with the error %v: the queue is\n%s\nbefore:\n%s\nafter:\n%s", after, length, err, state, states[0], states[1])
		}
		if found[at]++; found[at] == 1 {
			s.drain(t)
		}
		if err != nil {
			failed++
		}
		s.connect(t, op)
	}
	t.Logf("%d cuts in %d bytes, %d errors; the queue was as before, after, and in between: %v", cuts, length, failed, found)
	if cuts < len(places(length))/2 {
		t.Errorf("only %d connections were cut", cuts)
	}
}

// connect calls an operation until it has a connection for the next one.
func (s *queueSweep) connect(t *testing.T, op queueOperation) {
	t.Helper()
	var err error
	for range 10 {
		s.restore(t)
		if err = op.do(t, s.through); err == nil {
			return
		}
	}
	t.Fatal(err)
}

// save keeps the messages with which an operation begins.
func (s *queueSweep) save(t *testing.T, op queueOperation) {
	t.Helper()
	s.empty(t)
	number := 0
	unblocks := false
	for _, m := range op.on {
		var rows []string
		owner := "NULL"
		if m.owner != "" {
			owner = "'" + m.owner + "'"
		}
		unblocks = unblocks || m.state == "unparked"
		for range m.n {
			number++
			state := strings.TrimPrefix(m.state, "un")
			rows = append(rows, fmt.Sprintf("(%d, 'id %d', 't', '%s', '', '{}', '%d', 1, '%s', %d, %s, 0)", number, number, m.key, number, state, m.due, owner))
		}
		override := ""
		if s.postgres {
			override = "OVERRIDING SYSTEM VALUE"
		}
		s.exec(t, "INSERT INTO onlyonce_outbox (seq, id, topic, ordering_key, tenant, headers, payload, created_at, state, due_at, owner, attempts) "+override+" VALUES "+strings.Join(rows, ", "))
	}
	if unblocks {
		for range 2 {
			if _, err := s.clean.Lease(t.Context(), "another", time.Hour, 1); err != nil {
				t.Fatal(err)
			}
		}
		if n, err := s.clean.Discard(t.Context(), 1); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	s.exec(t, "DELETE FROM saved")
	s.exec(t, "INSERT INTO saved SELECT * FROM onlyonce_outbox")
}

func (s *queueSweep) restore(t *testing.T) {
	t.Helper()
	s.settled(t)
	override := ""
	if s.postgres {
		override = "OVERRIDING SYSTEM VALUE"
	}
	s.empty(t)
	s.exec(t, "INSERT INTO onlyonce_outbox "+override+" SELECT * FROM saved")
}

func (s *queueSweep) empty(t *testing.T) {
	t.Helper()
	if s.postgres { // which otherwise keeps the rows until they are vacuumed
		s.exec(t, "TRUNCATE onlyonce_outbox")
	} else {
		s.exec(t, "DELETE FROM onlyonce_outbox")
	}
}

func (s *queueSweep) exec(t *testing.T, statement string) {
	t.Helper()
	if _, err := s.db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

// settled waits until the server works on nothing for a connection that was cut.
func (s *queueSweep) settled(t *testing.T) {
	t.Helper()
	busy := "SELECT count(*) FROM information_schema.processlist p LEFT JOIN information_schema.innodb_trx x ON x.trx_mysql_thread_id = p.id WHERE p.db = database() AND p.id <> connection_id() AND (p.command <> 'Sleep' OR x.trx_id IS NOT NULL)"
	if s.postgres {
		busy = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend' AND state <> 'idle'"
	}
	for end := time.Now().Add(answerLimit); ; time.Sleep(time.Millisecond) {
		var n int
		if err := s.db.QueryRowContext(t.Context(), busy).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the server does not come to rest")
		}
	}
}

// state describes all messages, without their times.
func (s *queueSweep) state(t *testing.T) string {
	t.Helper()
	rows, err := s.db.QueryContext(t.Context(), "SELECT seq, ordering_key, state, owner IS NULL, attempts, coalesce(error, '') FROM onlyonce_outbox ORDER BY seq")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var text strings.Builder
	for rows.Next() {
		var seq, attempts int64
		var key, state, failure string
		var free bool
		if err := rows.Scan(&seq, &key, &state, &free, &attempts, &failure); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&text, seq, key, state, free, attempts, failure)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// drain publishes all that is in the queue, which has to come once and in order.
func (s *queueSweep) drain(t *testing.T) {
	t.Helper()
	var want int
	s.exec(t, "UPDATE onlyonce_outbox SET due_at = 1 WHERE state = 'held'")
	if err := s.db.QueryRowContext(t.Context(), "SELECT count(*) FROM onlyonce_outbox WHERE state <> 'published'").Scan(&want); err != nil {
		t.Fatal(err)
	}
	last, came := make(map[string]int64), 0
	for idle := 0; idle < 3; {
		parked, err := s.clean.Parked(t.Context(), 0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range parked {
			if _, err := s.clean.Requeue(t.Context(), e.Seq); err != nil {
				t.Fatal(err)
			}
		}
		list, err := s.clean.Lease(t.Context(), sweepOwner, time.Hour, 50)
		if err != nil {
			t.Fatal(err)
		}
		if idle++; len(list) > 0 {
			idle = 0
		}
		var verdicts []outbox.Verdict
		for _, e := range list {
			if e.Key != "" && e.Seq <= last[e.Key] {
				t.Errorf("%d came after %d", e.Seq, last[e.Key])
			}
			last[e.Key] = e.Seq
			verdicts = append(verdicts, outbox.Verdict{Seq: e.Seq, State: outbox.StatePublished})
		}
		if err := s.clean.Settle(t.Context(), sweepOwner, verdicts); err != nil && !errors.Is(err, outbox.ErrLost) {
			t.Fatal(err)
		}
		came += len(list)
	}
	if came != want {
		t.Errorf("%d messages came of %d", came, want)
	}
}
