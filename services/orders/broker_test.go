package orders

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/services/internal/apitest"
	"github.com/onlyonce-go/onlyonce/services/publicid"
)

// eachBroker runs a test in a new world with each broker.
func eachBroker(t *testing.T, test func(w *world), change ...func(*Config)) {
	for _, address := range []string{
		apitest.FromEnv("ONLYONCE_NATS", "nats://127.0.0.1:4222"),
		apitest.FromEnv("ONLYONCE_RABBITMQ", "amqp://guest:guest@127.0.0.1:5672/"),
	} {
		scheme, _, _ := strings.Cut(address, ":")
		t.Run(scheme, func(t *testing.T) {
			name := "test-" + strings.ToLower(rand.Text()[:12])
			forgetBroker(t, address, name)
			all := append([]func(*Config){func(c *Config) { c.Broker, c.BrokerName = address, name }}, change...)
			test(newWorld(t, all...))
		})
	}
}

// forgetBroker skips the test if the broker is not there, and has what the test
// makes deleted at its end.
func forgetBroker(t *testing.T, address, name string) {
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	if u.Scheme == "nats" {
		conn, err := nats.Connect(address)
		needs.Service(t, "NATS", err)
		t.Cleanup(func() {
			defer conn.Close()
			js, err := jetstream.New(conn)
			if err == nil {
				err = js.DeleteStream(context.Background(), name)
			}
			if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
				t.Error(err)
			}
		})
		return
	}
	conn, err := amqp.Dial(address)
	needs.Service(t, "RabbitMQ", err)
	t.Cleanup(func() {
		defer conn.Close()
		ch, err := conn.Channel()
		if err != nil {
			t.Error(err)
			return
		}
		_, inQueue := ch.QueueDelete(name+"."+consumer, false, false, false)
		if err := errors.Join(inQueue, ch.ExchangeDelete(name, false, false)); err != nil {
			t.Error(err)
		}
	})
}

func TestBroker_AnOrderGetsItsShipmentThroughABroker(t *testing.T) {
	eachBroker(t, func(w *world) {
		other := w.open(w.store, func(c *Config) { *c = w.api.cfg })
		w.run(w.api)
		w.run(other)
		for n := range 20 {
			w.place(fmt.Sprint("k", n))
		}
		eventually(w.t, "every order has its shipment", func() bool { return w.shipments() >= 20 })
		w.shipped()
		if n, m := w.shipments(), w.count("SELECT count(DISTINCT order_id) FROM orders_shipments"); n != 20 || m != 20 {
			w.t.Errorf("%d shipments of %d orders", n, m)
		}
	})
}

func TestBroker_AMessageFromABrokerThatKeepsFailingIsKeptWithItsErrorUntilItIsRetried(t *testing.T) {
	eachBroker(t, func(w *world) {
		o := orderIDs.Format(publicid.New())
		w.say(outbox.Message{ID: "bad", Topic: TopicCreated, Key: o, Tenant: "acme", Payload: []byte(`{"order_id":"` + o + `"}`)})
		w.exec("ALTER TABLE orders_shipments RENAME TO orders_gone")
		w.run(w.api)
		var given []Poisoned
		eventually(w.t, "it is given up", func() (up bool) {
			var err error
			given, err = w.api.Poisoned(w.t.Context(), Poisoned{}, 10)
			return err == nil && len(given) == 1
		})
		p := given[0]
		if len(w.log.Lines(w.t, "inbox_poisoned")) == 0 {
			w.t.Error("it is not logged")
		}
		if p.ID != "bad" || p.Tenant != "acme" || !strings.Contains(p.Error, "orders_shipments") || time.Since(p.At) > time.Minute {
			w.t.Errorf("it is %+v", p)
		}
		eventually(w.t, "it has been given up for good", func() bool { return w.recordOf(consumer, "acme", "bad").Final })
		if n, err := w.api.PoisonedCount(w.t.Context()); n != 1 || err != nil {
			w.t.Errorf("%d are counted, %v", n, err)
		}
		for range 3 {
			if err := w.api.Retry(w.t.Context(), p); err == nil || !strings.Contains(err.Error(), "orders_shipments") {
				w.t.Errorf("a retry that fails: %v", err)
			}
		}
		w.exec("ALTER TABLE orders_gone RENAME TO orders_shipments")
		w.place("k1")
		eventually(w.t, "the others go on", func() bool { return w.shipments() == 1 })
		if err := w.api.Retry(w.t.Context(), p); err != nil {
			w.t.Error(err)
		}
		left, err := w.api.Poisoned(w.t.Context(), Poisoned{}, 10)
		if n := w.shipments(); n != 2 || len(left) != 0 || err != nil {
			w.t.Errorf("%d shipments, poisoned: %+v, %v", n, left, err)
		}
		if err := w.api.Retry(w.t.Context(), p); err != nil || w.shipments() != 2 { // by someone else at the same time
			w.t.Errorf("%d shipments, %v", w.shipments(), err)
		}
	}, func(c *Config) { c.MaxAttempts = 2 })
}

func TestBroker_OrdersAreTakenWhileTheBrokerIsNotThereYet(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Broker = "nats://127.0.0.1:1" })
	stop := w.run(w.api)
	w.place("k1")
	eventually(t, "its absence is noticed", func() bool { return strings.Contains(w.log.String(), "connecting to the broker failed: retrying") })
	stop()
	if lag := w.lag(); lag.Waiting != 1 {
		t.Errorf("%+v", lag)
	}
	later := w.open(w.store)
	w.run(later)
	w.shipped()
	if n := w.shipments(); n != 1 {
		t.Errorf("%d shipments", n)
	}
}

func TestBroker_ABrokerThatNobodyKnowsIsRejected(t *testing.T) {
	w := newWorld(t)
	_, err := New(t.Context(), w.db, w.store, w.store.Outbox(), Config{Broker: "kafka://u:s3cret@h"})
	if err == nil || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), "write nats://") {
		t.Errorf("%v", err)
	}
	if err := Relay(t.Context(), w.store.Outbox(), Config{}); err == nil {
		t.Error("a relay without a broker runs")
	}
}

func TestBroker_ARelayMayRunAlone(t *testing.T) {
	eachBroker(t, func(w *world) {
		w.place("k1")
		taker := w.open(w.store, func(c *Config) { *c = w.api.cfg })
		taker.outbox = still{taker.outbox}
		w.run(taker)
		ctx, stop := context.WithCancel(w.t.Context())
		ended := make(chan error)
		go func() { ended <- Relay(ctx, w.store.Outbox(), w.api.cfg) }()
		eventually(w.t, "the order is shipped", func() bool { return w.shipments() == 1 })
		stop()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
	})
}

func TestBroker_AnEventThatARelayPublishesBeforeThereIsAConsumerIsNotLost(t *testing.T) {
	eachBroker(t, func(w *world) {
		w.place("k1")
		ctx, stop := context.WithCancel(w.t.Context())
		ended := make(chan error)
		go func() { ended <- Relay(ctx, w.store.Outbox(), w.api.cfg) }()
		eventually(w.t, "the broker has the event, or does not take it", func() bool {
			return w.lag().Waiting == 0 || strings.Contains(w.log.String(), "outbox_unavailable")
		})
		stop()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
		w.run(w.api)
		eventually(w.t, "the order is shipped", func() bool { return w.shipments() == 1 })
	})
}

// still is an outbox that gives its relay nothing.
type still struct{ Outbox }

func (still) Lease(context.Context, string, time.Duration, int, ...string) ([]outbox.Entry, error) {
	return nil, nil
}
