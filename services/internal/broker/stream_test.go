package broker

import (
	"crypto/rand"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/outbox"
)

// openOn opens a broker on a stream that another program has created, and returns the
// error.
func openOn(t *testing.T, change func(*jetstream.StreamConfig)) error {
	t.Helper()
	address := os.Getenv("ONLYONCE_NATS")
	if address == "" {
		address = "nats://127.0.0.1:4222"
	}
	conn, err := nats.Connect(address)
	needs.Service(t, "NATS", err)
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	name := "onlyonce_" + strings.ToLower(rand.Text())
	stream := jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}}
	change(&stream)
	sealed := stream.Sealed
	stream.Sealed = false
	if _, err := js.CreateStream(t.Context(), stream); err != nil {
		t.Fatal(err)
	}
	if stream.Sealed = sealed; sealed {
		if _, err := js.UpdateStream(t.Context(), stream); err != nil {
			t.Fatal(err)
		}
	}
	defer func() {
		if err := js.DeleteStream(t.Context(), name); err != nil {
			t.Error(err)
		}
	}()
	b, err := Open(t.Context(), address, Config{Name: name})
	if err == nil {
		_ = b.Close()
	}
	return err
}

// The relay deletes messages that the stream has acknowledged, so a stream that loses it, or that
// acknowledges nothing, is not used.
func TestNATS_AStreamThatLosesWhatItAcknowledgedIsRejectedWithWhatToChange(t *testing.T) {
	for want, change := range map[string]func(*jetstream.StreamConfig){
		"storage":              func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage },
		"no_ack":               func(c *jetstream.StreamConfig) { c.NoAck = true },
		"retention: interest":  func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy },
		"max_msgs":             func(c *jetstream.StreamConfig) { c.MaxMsgs = 1000 },
		"max_bytes":            func(c *jetstream.StreamConfig) { c.MaxBytes = 1 << 20 },
		"sealed":               func(c *jetstream.StreamConfig) { c.Sealed = true },
		"max_msgs_per_subject": func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 10 },
	} {
		t.Run(want, func(t *testing.T) {
			if err := openOn(t, change); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want an error that names %q", err, want)
			}
		})
	}
}

func TestNATS_AStreamThatKeepsWhatItAcknowledgedMayHaveLimits(t *testing.T) {
	for name, change := range map[string]func(*jetstream.StreamConfig){
		"queue":   func(c *jetstream.StreamConfig) { c.Retention = jetstream.WorkQueuePolicy },
		"none":    func(*jetstream.StreamConfig) {},
		"age":     func(c *jetstream.StreamConfig) { c.MaxAge = 30 * 24 * time.Hour },
		"size":    func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1 << 10 },
		"rejects": func(c *jetstream.StreamConfig) { c.Discard, c.MaxMsgs, c.MaxBytes = jetstream.DiscardNew, 1000, 1<<20 },
		"rejects per subject": func(c *jetstream.StreamConfig) {
			c.Discard, c.DiscardNewPerSubject, c.MaxMsgsPerSubject = jetstream.DiscardNew, true, 10
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := openOn(t, change); err != nil {
				t.Error(err)
			}
		})
	}
}

// A server that was restarted without its data has no stream, nor has one whose stream
// was deleted.
func TestNATS_AStreamThatIsGoneIsCreatedAgain(t *testing.T) {
	each(t, func(t *testing.T, b Broker) {
		n, ok := b.(*natsBroker)
		if !ok {
			t.Skip("NATS only: the RabbitMQ exchange is declared for every channel")
		}
		if err := n.js.DeleteStream(t.Context(), n.cfg.Name); err != nil {
			t.Fatal(err)
		}
		list := made(t, outbox.Message{Topic: "t"})
		if errs := b.Publish(t.Context(), list); !errors.Is(errs[0], outbox.ErrUnavailable) {
			t.Errorf("without a stream: %v", errs)
		}
		publish(t, b, list)
		r := receive(t, b, "one", nil)
		eventually(t, "it came", func() bool { return r.count() == 1 })
	})
}
