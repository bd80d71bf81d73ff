package outbox_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/outbox"
)

func TestMessage_AMessageIsCompletedWhenItIsAppended(t *testing.T) {
	ctx := outbox.Carry(t.Context(), outbox.HeaderTraceparent, "00-1-2-01")
	ctx = outbox.Carry(ctx, outbox.HeaderTenant, "acme")
	ctx = outbox.Carry(ctx, "x", "carried")
	given := outbox.Message{Topic: "orders.created", Key: "k", Headers: map[string]string{"x": "own"}}
	m, err := outbox.Prepare(ctx, given)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		outbox.HeaderTraceparent: "00-1-2-01",
		outbox.HeaderTenant:      "acme",
		outbox.HeaderKey:         "k",
		outbox.HeaderID:          m.ID,
		"x":                      "own",
	}
	for name, value := range want {
		if m.Headers[name] != value {
			t.Errorf("header %s is %q, want %q", name, m.Headers[name], value)
		}
	}
	if m.Tenant != "acme" || len(m.Headers) != len(want) || len(given.Headers) != 1 {
		t.Errorf("the message is %+v", m)
	}
}

func TestMessage_AnIDThatIsSetIsKept(t *testing.T) {
	m, err := outbox.Prepare(t.Context(), outbox.Message{ID: "mine", Tenant: "acme", Topic: "t", Headers: map[string]string{outbox.HeaderID: "other"}})
	if err != nil || m.ID != "mine" || m.Headers[outbox.HeaderID] != "mine" || m.Headers[outbox.HeaderTenant] != "acme" {
		t.Errorf("the message is %+v, %v", m, err)
	}
}

func TestMessage_MessagesThatABrokerCouldNotTakeAreRejected(t *testing.T) {
	for name, m := range map[string]outbox.Message{
		"no Topic":                  {},
		"Topic has 256 bytes":       {Topic: strings.Repeat("x", 256)},
		"ID has 256 bytes":          {Topic: "t", ID: strings.Repeat("x", 256)},
		"Key has 256 bytes":         {Topic: "t", Key: strings.Repeat("x", 256)},
		"Tenant has 256 bytes":      {Topic: "t", Tenant: strings.Repeat("x", 256)},
		"control characters or is":  {Topic: "t", ID: "a\nb"},
		"Key \"\\xff\"":             {Topic: "t", Key: "\xff"},
		"header \"a b\"":            {Topic: "t", Headers: map[string]string{"a b": ""}},
		"header \"xxx":              {Topic: "t", Headers: map[string]string{strings.Repeat("x", 256): "1"}},
		"header \"\"":               {Topic: "t", Headers: map[string]string{"": "x"}},
		"header \"x\" has":          {Topic: "t", Headers: map[string]string{"x": "1\r\ny: 2"}},
		"headers: use at most 1000": {Topic: "t", Headers: many(1001)},
		"headers have":              {Topic: "t", Headers: map[string]string{"x": strings.Repeat("x", 33<<10)}},
		"\"Nats-Msg-Id\", which a":  {Topic: "t", Headers: map[string]string{"Nats-Msg-Id": "1"}},
		"\"nats-rollup\", which a":  {Topic: "t", Headers: map[string]string{"nats-rollup": "all"}},
		"\"CC\", which RabbitMQ":    {Topic: "t", Headers: map[string]string{"CC": "team@example.com"}},
		"\"BCC\", which RabbitMQ":   {Topic: "t", Headers: map[string]string{"BCC": "team@example.com"}},
		"\"status\" and no Payload": {Topic: "t", Headers: map[string]string{"status": "canceled"}},
		"ID \"a \" begins or":       {Topic: "t", ID: "a "},
		"Tenant \" acme\" begins":   {Topic: "t", Tenant: " acme"},
		"Tenant \"acme \" begins":   {Topic: "t", Headers: map[string]string{outbox.HeaderTenant: "acme "}},
	} {
		if _, err := outbox.Prepare(t.Context(), m); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMessage_NewIDsAreUUIDsOfVersion7(t *testing.T) {
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := make(map[string]bool)
	for range 1000 {
		id := outbox.NewID()
		if !form.MatchString(id) || seen[id] {
			t.Fatalf("%q", id)
		}
		seen[id] = true
	}
}

func TestMessage_NonsenseInAConfigIsRejectedWithWhatToWrite(t *testing.T) {
	for want, make := range map[string]func(){
		"Config.Batch is negative": func() { outbox.NewRelay(newMemQueue(), new(broker), outbox.Config{Batch: -1}) },
		"Config.Lease is 1ms":      func() { outbox.NewRelay(newMemQueue(), new(broker), outbox.Config{Lease: 1e6}) },
		"Config.Lease is 25h":      func() { outbox.NewRelay(newMemQueue(), new(broker), outbox.Config{Lease: 25 * time.Hour}) },
		"Config.MaxBackoff 25h":    func() { outbox.NewRelay(newMemQueue(), new(broker), outbox.Config{MaxBackoff: 25 * time.Hour}) },
		"without a queue":          func() { outbox.NewRelay(nil, new(broker), outbox.Config{}) },
	} {
		func() {
			defer func() {
				if p, _ := recover().(string); !strings.Contains(p, want) {
					t.Errorf("panicked with %q, want %q", p, want)
				}
			}()
			make()
		}()
	}
}

func many(n int) map[string]string {
	headers := make(map[string]string, n)
	for i := range n {
		headers[fmt.Sprint("h", i)] = "v"
	}
	return headers
}
