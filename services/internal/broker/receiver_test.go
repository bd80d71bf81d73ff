package broker

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/outbox"
)

// each runs a test on every broker, with a stream or exchange of its own.
func each(t *testing.T, test func(t *testing.T, b Broker)) {
	for _, kind := range []struct{ name, env, address string }{
		{"NATS", "ONLYONCE_NATS", "nats://127.0.0.1:4222"},
		{"RabbitMQ", "ONLYONCE_AMQP", "amqp://guest:guest@127.0.0.1:5672/"},
	} {
		t.Run(kind.name, func(t *testing.T) {
			address := kind.address
			if own := os.Getenv(kind.env); own != "" {
				address = own
			}
			b, err := Open(t.Context(), address, Config{Name: "onlyonce_" + strings.ToLower(rand.Text()), AckWait: ackWait})
			needs.Service(t, kind.name, err)
			t.Cleanup(func() { remove(t, b) })
			test(t, b)
		})
	}
}

// remove deletes the queues and streams that the test created at the broker.
func remove(t testing.TB, b Broker) {
	ctx := context.WithoutCancel(t.Context())
	switch b := b.(type) {
	case *natsBroker:
		if err := b.js.DeleteStream(ctx, b.cfg.Name); err != nil {
			t.Error(err)
		}
	case *amqpBroker:
		ch, err := b.incoming.channel(b.cfg.Name)
		if err != nil {
			t.Error(err)
			break
		}
		for _, queue := range []string{"one", "two"} {
			_, err := ch.QueueDelete(b.cfg.Name+"."+queue, false, false, false)
			if err = errors.Join(err, ch.ExchangeDelete(b.cfg.Name, false, false)); err != nil {
				t.Error(err)
			}
		}
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// A receiver records the messages that a consumer gets.
type receiver struct {
	t  *testing.T
	mu sync.Mutex
	// got has the payloads of each key.
	got   map[string][]string
	last  outbox.Message
	fails map[string][]error // by payload: errors to return first
	stop  func()
}

// receive consumes the messages that are published from now on, until the test ends.
func receive(t *testing.T, b Broker, consumer string, fails map[string][]error) *receiver {
	t.Helper()
	if a, ok := b.(*amqpBroker); ok {
		if err := a.declare(t.Context(), a.cfg.Name+"."+consumer); err != nil {
			t.Fatal(err)
		}
	}
	return begin(t, b, consumer, fails)
}

// begin begins to consume, and ends with the test.
func begin(t *testing.T, b Broker, consumer string, fails map[string][]error) *receiver {
	t.Helper()
	r := &receiver{t: t, got: make(map[string][]string), fails: fails}
	r.stop = consume(t, b, consumer, r.handle)
	if n, ok := b.(*natsBroker); ok {
		eventually(t, "the consumer is there", func() bool {
			stream, err := n.js.Stream(t.Context(), n.cfg.Name)
			if err == nil {
				_, err = stream.Consumer(t.Context(), durable(stream, consumer))
			}
			return err == nil
		})
	}
	return r
}

// consume consumes until stop is called or the test ends.
func consume(t *testing.T, b Broker, consumer string, handle Handler) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Consume(ctx, consumer, handle) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func (r *receiver) handle(_ context.Context, m outbox.Message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if fails := r.fails[string(m.Payload)]; len(fails) > 0 {
		r.fails[string(m.Payload)] = fails[1:]
		return fails[0]
	}
	r.got[m.Key] = append(r.got[m.Key], string(m.Payload))
	r.last = m
	return nil
}

// count is how many different messages came.
func (r *receiver) count() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, list := range r.got {
		n += len(list)
	}
	return n
}

// has reports whether a message came.
func (r *receiver) has(payload string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, list := range r.got {
		if slices.Contains(list, payload) {
			return true
		}
	}
	return false
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in %v: %s", patience, what)
		}
	}
}

// made completes messages as a queue does.
func made(t *testing.T, list ...outbox.Message) []outbox.Message {
	t.Helper()
	for i := range list {
		m, err := outbox.Prepare(t.Context(), list[i])
		if err != nil {
			t.Fatal(err)
		}
		list[i] = m
	}
	return list
}

func publish(t *testing.T, b Broker, list []outbox.Message) {
	t.Helper()
	if err := errors.Join(b.Publish(t.Context(), list)...); err != nil {
		t.Fatal(err)
	}
}
