package orders

import (
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
		list, err := w.api.Poisoned(t.Context(), 100)
		if err != nil || len(list) != 3 {
			t.Fatalf("%d are kept, want 3, %v", len(list), err)
		}
		for _, p := range list {
			first := string(p.Payload) == payloads[0]
			if own := p.ID == "m"; own != first {
				t.Errorf("%s is kept under the ID %q", p.Payload, p.ID)
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
		list, err := w.api.Poisoned(t.Context(), 100)
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
