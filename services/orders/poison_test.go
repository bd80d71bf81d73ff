package orders

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/services/publicid"
)

// Whoever can publish may reuse the ID of a message that was given up.
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

// payload returns the payload that is kept of a message.
func (w *world) payload(p Poisoned) (payload string) {
	w.t.Helper()
	if err := w.db.QueryRowContext(w.t.Context(), w.api.engine.Bind(payloadSQL), p.ID, p.Tenant).Scan(&payload); err != nil {
		w.t.Fatal(err)
	}
	return payload
}
