package orders

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/services/internal/apitest"
	"github.com/onlyonce-go/onlyonce/services/publicid"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// Any publisher may reuse the ID of a message that was given up.
func TestPoison_AMessageWithTheIDOfOneThatWasGivenUpDoesNotReplaceIt(t *testing.T) {
	eachEngine(t, func(w *world) {
		o := orderIDs.Format(publicid.New())
		payloads := []string{`{"order_id":"` + o + `","x":`, "{}", "[]", "[]"}
		for _, payload := range payloads {
			m := outbox.Message{ID: "m", Topic: TopicCreated, Tenant: "acme", Payload: []byte(payload)}
			if err := w.api.receive(t.Context(), m); err != nil {
				t.Error(err)
			}
		}
		list, err := w.api.Poisoned(t.Context(), Poisoned{}, 100)
		if err != nil || len(list) != 3 {
			t.Fatalf("%d are kept, want 3, %v", len(list), err)
		}
		for _, p := range list {
			payload := w.payload(p)
			first := payload == payloads[0]
			if own := p.ID == "m"; own != first {
				t.Errorf("%s is kept under the ID %q", payload, p.ID)
			}
			if !first && !strings.HasPrefix(p.Error, `the message's ID is "m"`) {
				t.Errorf("the error does not tell the ID: %q", p.Error)
			}
		}
	}, func(c *Config) { c.Broker, c.MaxAttempts = "nats://127.0.0.1:1", 1 })
}

// A message that can be neither handled nor given up is redelivered forever, and
// with enough of them a broker delivers nothing else.
func TestPoison_EveryMessageThatFailsCanBeGivenUp(t *testing.T) {
	eachEngine(t, func(w *world) {
		long := strings.Repeat("x", 1<<10)
		bad := []outbox.Message{
			{ID: "", Tenant: "acme"},
			{ID: "a\xff", Tenant: "acme"},
			{ID: "a\xfe", Tenant: "acme"},
			{ID: "a\x00", Tenant: "acme"},
			{ID: long, Tenant: long},
			{ID: long + "y", Tenant: "acme"},
			{ID: strings.Repeat("é", 200), Tenant: "acme"},
			{ID: "m", Tenant: "t\xff"},
			{ID: "m", Tenant: "t\x00"},
			{ID: "m", Tenant: strings.Repeat("y", 256)},
			{ID: hashedName + "m", Tenant: "acme"},
		}
		for _, m := range bad {
			m.Topic, m.Payload = TopicCreated, []byte("{}")
			if err := w.api.receive(t.Context(), m); err != nil {
				t.Errorf("ID %.20q, tenant %.20q: %v", m.ID, m.Tenant, err)
			}
		}
		list, err := w.api.Poisoned(t.Context(), Poisoned{}, 100)
		if err != nil || len(list) != len(bad) {
			t.Errorf("%d are kept of %d, %v", len(list), len(bad), err)
		}
		for _, p := range list {
			if !strings.HasPrefix(p.ID, hashedName) && !strings.HasPrefix(p.Tenant, hashedName) {
				t.Errorf("kept as it is: ID %.20q, tenant %.20q", p.ID, p.Tenant)
			}
			if !strings.HasPrefix(p.Error, "the message's ID is ") {
				t.Errorf("the error does not tell the names: %q", p.Error)
			}
			if err := w.api.Retry(t.Context(), p); err == nil {
				t.Errorf("ID %.20q: a retry under another name", p.ID)
			}
			if err := w.api.Discard(t.Context(), p); err != nil {
				t.Error(err)
			}
		}
		if n, err := w.api.PoisonedCount(t.Context()); n != 0 || err != nil {
			t.Errorf("%d are left, %v", n, err)
		}
		if err := w.api.receive(t.Context(), outbox.Message{ID: "empty", Topic: TopicCreated, Tenant: "acme"}); err != nil {
			t.Errorf("without a payload: %v", err)
		}
		for _, payload := range []string{"{}", "[]", "[]"} {
			if err := w.api.receive(t.Context(), outbox.Message{Topic: TopicCreated, Tenant: "acme", Payload: []byte(payload)}); err != nil {
				t.Errorf("without an ID: %v", err)
			}
		}
		if n, err := w.api.PoisonedCount(t.Context()); n != 3 || err != nil {
			t.Errorf("%d are kept of one without a payload and two without an ID, %v", n, err)
		}
		o := orderIDs.Format(publicid.New())
		good := outbox.Message{ID: strings.Repeat("i", 255), Topic: TopicCreated, Tenant: "acme", Payload: []byte(`{"order_id":"` + o + `"}`)}
		if err := w.api.receive(t.Context(), good); err != nil || w.shipments() != 1 {
			t.Errorf("%d shipments, %v", w.shipments(), err)
		}
	}, func(c *Config) { c.Broker, c.MaxAttempts = "nats://127.0.0.1:1", 1 })
}

// RabbitMQ delivers messages that are too large for one statement of MariaDB.
func TestPoison_AMessageThatIsTooLargeForTheDatabaseCanBeGivenUp(t *testing.T) {
	eachEngine(t, func(w *world) {
		payload := bytes.Repeat([]byte("x"), 17<<20)
		for range 2 {
			if err := w.api.receive(t.Context(), outbox.Message{ID: "m", Topic: TopicCreated, Tenant: "acme", Payload: payload}); err != nil {
				t.Error(err)
			}
			w.exec("DELETE FROM onlyonce_records")
		}
		list, err := w.api.Poisoned(t.Context(), Poisoned{}, 100)
		if err != nil || len(list) != 1 {
			t.Errorf("%d are kept, want 1, %v", len(list), err)
			return
		}
		p := list[0]
		if !strings.HasPrefix(p.ID, hashedName) || !strings.Contains(p.Error, `the message's ID is "m"`) || !strings.Contains(p.Error, "17825792 bytes") {
			t.Errorf("kept as %+v", p)
		}
		if kept := w.payload(p); kept != string(payload[:longestPayload]) {
			t.Errorf("%d bytes of the payload are kept", len(kept))
		}
		if err := w.api.Retry(t.Context(), p); err == nil {
			t.Error("a part of a message was handled")
		}
	}, func(c *Config) { c.Broker, c.MaxAttempts = "nats://127.0.0.1:1", 1 })
}

func TestPoison_ManyMessagesCanBeGivenUpAtTheSameTime(t *testing.T) {
	eachEngine(t, func(w *world) {
		const messages = 300
		var all sync.WaitGroup
		for n := range messages {
			all.Go(func() {
				if err := w.api.poison(t.Context(), inbox.Message{ID: fmt.Sprint(n), Tenant: "acme"}, errors.New("no room")); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n, err := w.api.PoisonedCount(t.Context()); n != messages || err != nil {
			t.Errorf("%d are kept, %v", n, err)
		}
	})
}

// NATS delivers its whole stream again to a consumer that was deleted, and most of the
// records of what it handled may have expired.
func TestPoison_AMessageThatIsOlderThanItsRecordWouldBeIsNotHandledUnasked(t *testing.T) {
	eachEngine(t, func(w *world) {
		m := outbox.Message{ID: "m", Topic: TopicCreated, Tenant: "acme", Payload: []byte(`{"order_id":"` + orderIDs.Format(publicid.New()) + `"}`)}
		m.CreatedAt = time.Now().Add(-w.api.cfg.KeepMessages + time.Hour)
		if err := w.api.receive(t.Context(), m); err != nil || w.shipments() != 1 {
			t.Errorf("%d shipments, %v", w.shipments(), err)
		}
		m.CreatedAt = time.Now().Add(-w.api.cfg.KeepMessages)
		if err := w.api.receive(t.Context(), m); err != nil || w.shipments() != 1 {
			t.Errorf("delivered again: %d shipments, %v", w.shipments(), err)
		}
		if n, err := w.api.PoisonedCount(t.Context()); n != 0 || err != nil {
			t.Errorf("%d are kept, although it is recorded, %v", n, err)
		}
		w.exec("DELETE FROM onlyonce_records")
		if err := w.api.receive(t.Context(), m); err != nil || w.shipments() != 1 {
			t.Errorf("without its record: %d shipments, %v", w.shipments(), err)
		}
		list, err := w.api.Poisoned(t.Context(), Poisoned{}, 100)
		if err != nil || len(list) != 1 || !strings.Contains(list[0].Error, "may have been handled") {
			t.Errorf("kept: %+v, %v", list, err)
			return
		}
		if err := w.api.Retry(t.Context(), list[0]); err != nil || w.shipments() != 2 {
			t.Errorf("a person has decided: %d shipments, %v", w.shipments(), err)
		}
		m.ID, m.CreatedAt = "undated", time.Time{}
		if err := w.api.receive(t.Context(), m); err != nil || w.shipments() != 3 {
			t.Errorf("without a time: %d shipments, %v", w.shipments(), err)
		}
	}, func(c *Config) { c.Broker = "nats://127.0.0.1:1" })
}

// An operator lists and retries messages whose payloads may be as large as the broker
// accepts.
func TestPoison_PagesOfMessagesAreReadWithoutTheirPayloads(t *testing.T) {
	eachEngine(t, func(w *world) {
		const messages, size = 12, 2 << 20
		payload := bytes.Repeat([]byte("x"), size)
		for n := range messages {
			id := fmt.Sprintf("m-%02d", n)
			w.exec("INSERT INTO orders_poison (id, tenant, payload, error, created_at) VALUES (?, ?, ?, ?, ?)", id, "acme", payload, "", 1+n/3)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var ids []string
		var last Poisoned
		for more := true; more; {
			list, err := w.api.Poisoned(t.Context(), last, 5)
			if err != nil {
				t.Fatal(err)
			}
			for _, last = range list {
				ids = append(ids, last.ID)
			}
			more = len(list) == 5
		}
		runtime.ReadMemStats(&after)
		if len(ids) != messages || !slices.IsSorted(ids) {
			t.Errorf("the pages have %q", ids)
		}
		if read := after.TotalAlloc - before.TotalAlloc; read > messages*size/2 {
			t.Errorf("%d bytes were allocated for %d messages of %d", read, messages, size)
		}
	})
}

// Of two operators who retry the same message, one may have discarded it.
func TestPoison_AMessageThatSomeoneElseDiscardedIsNotHandled(t *testing.T) {
	eachEngine(t, func(w *world) {
		o := orderIDs.Format(publicid.New())
		w.exec("INSERT INTO orders_poison (id, tenant, payload, error, created_at) VALUES (?, ?, ?, ?, ?)", "m", "acme", []byte(`{"order_id":"`+o+`"}`), "", 1)
		p := Poisoned{ID: "m", Tenant: "acme"}
		if err := w.api.Discard(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if err := w.api.Retry(t.Context(), p); err != nil || w.shipments() != 0 {
			t.Errorf("%d shipments, %v", w.shipments(), err)
		}
	})
}

// The record of a message that was given up expires; the message is kept for longer.
func TestPoison_AMessageWhoseRecordHasExpiredIsNotReplacedByAnotherWithItsID(t *testing.T) {
	eachEngine(t, func(w *world) {
		o := orderIDs.Format(publicid.New())
		payloads := []string{`{"order_id":"` + o + `","x":`, "{}", "{}", "[]"}
		for _, payload := range payloads {
			if err := w.api.receive(t.Context(), outbox.Message{ID: "m", Topic: TopicCreated, Tenant: "acme", Payload: []byte(payload)}); err != nil {
				t.Error(err)
			}
			w.exec("DELETE FROM onlyonce_records")
		}
		list, err := w.api.Poisoned(t.Context(), Poisoned{}, 100)
		if err != nil || len(list) != 3 {
			t.Fatalf("%d are kept, want 3, %v", len(list), err)
		}
		for _, p := range list {
			if payload := w.payload(p); (p.ID == "m") != (payload == payloads[0]) {
				t.Errorf("%s is kept under the ID %q", payload, p.ID)
			}
		}
	}, func(c *Config) { c.Broker, c.MaxAttempts = "nats://127.0.0.1:1", 1 })
}

// A lookupStore calls looked after each Lookup.
type lookupStore struct {
	*sqlstore.Store
	looked func()
}

func (s lookupStore) Lookup(ctx context.Context, id onlyonce.ID) (onlyonce.Record, error) {
	rec, err := s.Store.Lookup(ctx, id)
	s.looked()
	return rec, err
}

func TestPoison_AMessageThatIsDiscardedDuringARetryIsNeverHandled(t *testing.T) {
	eachEngine(t, func(w *world) {
		m := outbox.Message{ID: "m", Topic: TopicCreated, Tenant: "acme", Payload: []byte(`{"order_id":"` + orderIDs.Format(publicid.New()) + `"}`)}
		for name, change := range map[string]func(*Config){
			"without a broker": func(*Config) {},
			"with a broker":    func(c *Config) { c.Broker, c.MaxAttempts = "nats://127.0.0.1:1", 1 },
		} {
			p := Poisoned{ID: "m", Tenant: "acme"}
			if err := w.api.poison(t.Context(), inbox.Message{ID: m.ID, Tenant: m.Tenant, Payload: m.Payload}, errors.New("no room")); err != nil {
				t.Fatal(err)
			}
			discard := func() {
				if err := w.api.Discard(t.Context(), p); err != nil {
					t.Error(err)
				}
			}
			if err := w.open(lookupStore{w.store, discard}, change).Retry(t.Context(), p); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if err := w.api.receive(t.Context(), m); err != nil {
				t.Errorf("%s: the message is delivered again: %v", name, err)
			}
			if n, err := w.api.PoisonedCount(t.Context()); n != 0 || err != nil || w.shipments() != 0 {
				t.Errorf("%s: %d are kept, %d shipments, %v", name, n, w.shipments(), err)
			}
			w.exec("DELETE FROM onlyonce_records")
		}
	}, func(c *Config) { c.Broker, c.MaxAttempts = "nats://127.0.0.1:1", 1 })
}

// A failed retry leaves a record that lets a later delivery run.
func TestPoison_AMessageThatIsDiscardedAfterAFailedRetryIsNeverHandled(t *testing.T) {
	eachEngine(t, func(w *world) {
		m := outbox.Message{ID: "m", Topic: TopicCreated, Tenant: "acme", Payload: []byte(`{"order_id":"` + orderIDs.Format(publicid.New()) + `"}`)}
		w.exec("ALTER TABLE orders_shipments RENAME TO away")
		for _, last := range []bool{false, true} {
			if err := w.api.receive(t.Context(), m); (err == nil) != last {
				t.Error(err)
			}
		}
		p := Poisoned{ID: "m", Tenant: "acme"}
		if err := w.api.Retry(t.Context(), p); err == nil {
			t.Error("the retry did not fail")
		}
		w.exec("ALTER TABLE away RENAME TO orders_shipments")
		if err := w.api.Discard(t.Context(), p); err != nil {
			t.Error(err)
		}
		if err := w.api.receive(t.Context(), m); err != nil {
			t.Errorf("the message is delivered again: %v", err)
		}
		if n, err := w.api.PoisonedCount(t.Context()); n != 0 || err != nil || w.shipments() != 0 {
			t.Errorf("%d are kept, %d shipments, %v", n, w.shipments(), err)
		}
	}, func(c *Config) { c.Broker, c.MaxAttempts = "nats://127.0.0.1:1", 2 })
}

// A dyingStore ends its process after a commit.
type dyingStore struct{ *sqlstore.Store }

func (s dyingStore) RunTx(ctx context.Context, c onlyonce.Claim, fn apitest.Func) (onlyonce.Record, error) {
	if rec, err := s.Store.RunTx(ctx, c, fn); err != nil {
		return rec, err
	}
	panic("the process dies")
}

// A later retry would find neither the message's record, which has expired, nor the end
// of the message.
func TestPoison_ARetryThatDiedAfterItsCommitIsNotRepeated(t *testing.T) {
	eachEngine(t, func(w *world) {
		payload := []byte(`{"order_id":"` + orderIDs.Format(publicid.New()) + `"}`)
		if err := w.api.poison(t.Context(), inbox.Message{ID: "m", Tenant: "acme", Payload: payload}, errors.New("no room")); err != nil {
			t.Fatal(err)
		}
		p := Poisoned{ID: "m", Tenant: "acme"}
		func() {
			defer func() { _ = recover() }()
			_ = w.open(dyingStore{w.store}).Retry(t.Context(), p)
		}()
		w.exec("DELETE FROM onlyonce_records")
		if err := w.api.Retry(t.Context(), p); err != nil || w.shipments() != 1 {
			t.Errorf("%d shipments, %v", w.shipments(), err)
		}
	})
}

// Its process died between the two steps of giving it up, and nobody delivers it again.
func TestPoison_AMessageThatWasKeptBeforeItsFailureWasFinalCanBeRetried(t *testing.T) {
	eachEngine(t, func(w *world) {
		m := outbox.Message{ID: "m", Topic: TopicCreated, Tenant: "acme", Payload: []byte(`{"order_id":"` + orderIDs.Format(publicid.New()) + `"}`)}
		m.CreatedAt = time.Now().Add(-w.api.cfg.KeepMessages)
		kept := errors.New("the process dies")
		in := inbox.NewTx(w.store, inbox.Config{Consumer: consumer, Redelivery: redelivery, Poison: func(ctx context.Context, m inbox.Message, cause error) error {
			return errors.Join(w.api.poison(ctx, m, cause), kept)
		}})
		_, err := inbox.HandleTx(t.Context(), in, received(m), func(context.Context, *sql.Tx) (struct{}, error) { return struct{}{}, errOld })
		if !errors.Is(err, kept) {
			t.Errorf("got %v", err)
		}
		if err := w.api.Retry(t.Context(), Poisoned{ID: "m", Tenant: "acme"}); err != nil || w.shipments() != 1 {
			t.Errorf("%d shipments, %v", w.shipments(), err)
		}
	})
}

// A message that was handled must not be handled again when its record has expired.
func TestPoison_AHandledMessageWhoseResultIsDamagedIsNotRetried(t *testing.T) {
	eachEngine(t, func(w *world) {
		m := outbox.Message{ID: "m", Topic: TopicCreated, Tenant: "acme", Payload: []byte(`{"order_id":"` + orderIDs.Format(publicid.New()) + `"}`)}
		if err := w.api.receive(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		w.exec("UPDATE onlyonce_records SET response_body = ?", []byte("{"))
		if err := w.api.receive(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		w.exec("DELETE FROM onlyonce_records")
		list, err := w.api.Poisoned(t.Context(), Poisoned{}, 100)
		if err != nil || len(list) != 1 {
			t.Fatalf("%d are kept, want 1, %v", len(list), err)
		}
		if err := w.api.Retry(t.Context(), list[0]); err == nil || w.shipments() != 1 {
			t.Errorf("%d shipments, %v", w.shipments(), err)
		}
	}, func(c *Config) { c.Broker, c.MaxAttempts = "nats://127.0.0.1:1", 1 })
}

// payload returns the payload that is kept of a message.
func (w *world) payload(p Poisoned) (payload string) {
	w.t.Helper()
	if err := w.db.QueryRowContext(w.t.Context(), w.api.engine.Bind(payloadSQL), p.ID, p.Tenant).Scan(&payload); err != nil {
		w.t.Fatal(err)
	}
	return payload
}
