package orders

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/services/publicid"
)

// run runs the API's work in the background until the test, or stop, ends it.
func (w *world) run(api *API) (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := api.Run(ctx); err != nil {
			w.t.Error(err)
		}
	}()
	stop = func() {
		cancel()
		<-ended
	}
	w.t.Cleanup(stop)
	return stop
}

func (w *world) shipments() int {
	w.t.Helper()
	return w.count("SELECT count(*) FROM orders_shipments")
}

func (w *world) lag() outbox.Lag {
	w.t.Helper()
	lag, err := w.store.Outbox().Lag(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return lag
}

// shipped waits until all that was announced is shipped.
func (w *world) shipped() {
	w.t.Helper()
	eventually(w.t, "all is shipped", func() bool { return w.lag().Waiting == 0 })
}

// next takes the message that waits, as a relay does.
func (w *world) next() outbox.Message {
	w.t.Helper()
	found, err := w.store.Outbox().Lease(w.t.Context(), "0123456789abcdef", time.Hour, 1)
	if err != nil || len(found) != 1 {
		w.t.Fatalf("%d messages, %v", len(found), err)
	}
	return found[0].Message
}

// say appends messages as the transaction of a command does.
func (w *world) say(messages ...outbox.Message) {
	w.t.Helper()
	guard := onlyonce.NewTx(w.store, onlyonce.Config{})
	_, err := onlyonce.DoTx(w.t.Context(), guard, onlyonce.Request{ID: onlyonce.ID{Operation: "say", Key: outbox.NewID()}, SkipFingerprint: true},
		func(ctx context.Context, tx *sql.Tx) (struct{}, error) {
			return struct{}{}, w.store.Outbox().Append(ctx, tx, messages...)
		})
	if err != nil {
		w.t.Fatal(err)
	}
}

func TestShipping_AnOrderGetsItsShipment(t *testing.T) {
	eachEngine(t, func(w *world) {
		first := w.place("k1", "X-Tenant-ID", "acme")
		m := w.lag()
		if m.Waiting != 1 {
			w.t.Errorf("%d events of one order", m.Waiting)
		}
		w.run(w.api)
		var got reply
		eventually(w.t, "the order has its shipment", func() bool {
			got = w.send("GET", first.Header.Get("Location"), "", "X-Tenant-ID", "acme")
			return got.order.Shipment != nil
		})
		s := got.order.Shipment
		if _, err := shipmentIDs.Parse(s.ID); err != nil || s.Status != "pending" || s.CreatedAt.Before(got.order.CreatedAt) {
			w.t.Errorf("it is %s", got.Body)
		}
		list := w.send("GET", "/orders", "", "X-Tenant-ID", "acme")
		if !strings.Contains(list.Body, s.ID) {
			w.t.Errorf("the list is %s", list.Body)
		}
		same(w.t, first, w.place("k1", "X-Tenant-ID", "acme")) // the stored response has none
		w.shipped()
		if n := w.shipments(); n != 1 {
			w.t.Errorf("%d shipments", n)
		}
	})
}

func TestShipping_TheEventSaysWhatWasOrderedAndBelongsToItsTenant(t *testing.T) {
	w := newWorld(t)
	first := w.place("k1", "X-Tenant-ID", "acme")
	m := w.next()
	var e event
	if err := json.Unmarshal(m.Payload, &e); err != nil {
		t.Fatal(err)
	}
	if m.Topic != "order.created" || m.Tenant != "acme" || m.Key != first.order.ID || m.Headers[outbox.HeaderTenant] != "acme" ||
		e.OrderID != first.order.ID || e.Total != "39.80" || len(e.Items) != 1 || *e.ExternalRef != "PO-7" || !e.CreatedAt.Equal(first.order.CreatedAt) {
		t.Errorf("it is %+v: %s", m, m.Payload)
	}
}

// appended is an outbox whose Append fails after it has appended.
type appended struct{ Outbox }

func (a appended) Append(ctx context.Context, tx *sql.Tx, messages ...outbox.Message) error {
	return errors.Join(a.Outbox.Append(ctx, tx, messages...), errors.New("the command fails later"))
}

func TestShipping_AFailedCommandLeavesNeitherOrderNorEvent(t *testing.T) {
	eachEngine(t, func(w *world) {
		w.api.outbox = appended{w.api.outbox}
		w.send("POST", "/orders", two, key, "k1").want(w.t, 500, "command_failed")
		if lag := w.lag(); w.orders() != 0 || lag.Waiting != 0 {
			w.t.Errorf("%d orders, %d events", w.orders(), lag.Waiting)
		}
		w.api.outbox = w.store.Outbox()
		w.place("k1")
		if lag := w.lag(); w.orders() != 1 || lag.Waiting != 1 {
			w.t.Errorf("%d orders, %d events", w.orders(), lag.Waiting)
		}
	})
}

func TestShipping_AMessageThatIsDeliveredTwiceMakesOneShipment(t *testing.T) {
	eachEngine(t, func(w *world) {
		w.place("k1")
		m := w.next()
		for range 2 {
			if errs := w.api.deliver(w.t.Context(), []outbox.Message{m, m}); errors.Join(errs...) != nil && !errors.Is(errors.Join(errs...), outbox.ErrUnavailable) {
				w.t.Error(errs)
			}
		}
		if n := w.shipments(); n != 1 {
			w.t.Errorf("%d shipments", n)
		}
	})
}

// A server may die between the shipment and the mark that the event was delivered, and the next one
// may start only when the record of the event has expired.
func TestShipping_AnEventThatIsOlderThanItsRecordWouldBeMakesNoSecondShipment(t *testing.T) {
	eachEngine(t, func(w *world) {
		w.place("k1")
		m := w.next()
		if err := errors.Join(w.api.deliver(w.t.Context(), []outbox.Message{m})...); err != nil || w.shipments() != 1 {
			w.t.Fatalf("%d shipments, %v", w.shipments(), err)
		}
		w.exec("DELETE FROM onlyonce_records")
		m.CreatedAt = time.Now().Add(-w.api.cfg.KeepMessages)
		if err := errors.Join(w.api.deliver(w.t.Context(), []outbox.Message{m})...); err != nil || w.shipments() != 1 {
			w.t.Errorf("delivered again: %d shipments, %v", w.shipments(), err)
		}
		w.place("k2")
		m = w.next()
		m.CreatedAt = time.Now().Add(-w.api.cfg.KeepMessages)
		if err := errors.Join(w.api.deliver(w.t.Context(), []outbox.Message{m})...); err != nil || w.shipments() != 2 {
			w.t.Errorf("an event that waited without being handled: %d shipments, %v", w.shipments(), err)
		}
	})
}

func TestShipping_TwoConsumersAtTheSameMomentMakeOneShipment(t *testing.T) {
	eachEngine(t, func(w *world) {
		other := openWorld(w.t, w.on)
		for n := range 10 {
			w.place(fmt.Sprint("k", n))
			m := w.next()
			var both sync.WaitGroup
			for _, api := range []*API{w.api, other.api} {
				both.Go(func() {
					for errs := api.deliver(w.t.Context(), []outbox.Message{m}); errs[0] != nil; errs = api.deliver(w.t.Context(), []outbox.Message{m}) {
						if !errors.Is(errs[0], outbox.ErrUnavailable) {
							w.t.Error(errs)
							return
						}
					}
				})
			}
			both.Wait()
			if made := w.shipments(); made != n+1 {
				w.t.Fatalf("%d shipments of %d orders", made, n+1)
			}
		}
	})
}

func TestShipping_SeveralRelaysMakeOneShipmentOfEachOrder(t *testing.T) {
	eachEngine(t, func(w *world) {
		w.run(w.api)
		for range 2 {
			w.run(openWorld(w.t, w.on).api)
		}
		for n := range 40 {
			w.place(fmt.Sprint("k", n))
		}
		w.shipped()
		if n, m := w.shipments(), w.count("SELECT count(DISTINCT order_id) FROM orders_shipments"); n != 40 || m != 40 {
			w.t.Errorf("%d shipments of %d orders", n, m)
		}
	})
}

func TestShipping_AMessageThatKeepsFailingIsParkedAndTheOthersGoOn(t *testing.T) {
	eachEngine(t, func(w *world) {
		w.say(outbox.Message{Topic: TopicCreated, Key: "bad", Tenant: "acme", Payload: []byte(`{"order_id":"ord_nonsense"}`)})
		w.place("k1")
		w.run(w.api)
		eventually(w.t, "it is parked, and the other order is shipped", func() bool {
			lag := w.lag()
			return lag.Parked == 1 && lag.Waiting == 0
		})
		queue := w.store.Outbox()
		parked, err := queue.Parked(w.t.Context(), 0, 10)
		if err != nil || len(parked) != 1 || parked[0].Attempts != 3 || !strings.Contains(parked[0].Error, "order_id: must have 26 characters") {
			w.t.Fatalf("parked: %+v, %v", parked, err)
		}
		if n := w.shipments(); n != 1 {
			w.t.Errorf("%d shipments", n)
		}
		if n, err := queue.Requeue(w.t.Context(), parked[0].Seq); n != 1 || err != nil {
			w.t.Errorf("%d requeued, %v", n, err)
		}
		eventually(w.t, "it has failed again", func() bool { return w.lag().Parked == 1 })
		if n, err := queue.Discard(w.t.Context(), parked[0].Seq); n != 1 || err != nil || w.lag().Parked != 0 {
			w.t.Errorf("%d discarded, %v", n, err)
		}
		if !strings.Contains(w.log.String(), "outbox_parked") {
			w.t.Error("it is not logged")
		}
	}, func(c *Config) { c.MaxAttempts = 3 })
}

func TestShipping_AMessageIsHandledAgainAfterItsConsumerCouldNot(t *testing.T) {
	eachEngine(t, func(w *world) {
		w.place("k1")
		w.exec("ALTER TABLE orders_shipments RENAME TO orders_gone")
		w.run(w.api)
		eventually(w.t, "it has failed", func() bool { return strings.Contains(w.log.String(), "outbox_failed") })
		w.exec("ALTER TABLE orders_gone RENAME TO orders_shipments")
		w.shipped()
		if n := w.shipments(); n != 1 {
			w.t.Errorf("%d shipments", n)
		}
	})
}

// A shaky broker can be away.
type shaky struct {
	to   func(context.Context, []outbox.Message) []error
	away atomic.Bool

	mu   sync.Mutex
	seen []outbox.Message // the acknowledged messages
}

func (s *shaky) Publish(ctx context.Context, messages []outbox.Message) []error {
	errs := make([]error, len(messages))
	if s.away.Load() {
		for i := range errs {
			errs[i] = fmt.Errorf("%w: connection refused", outbox.ErrUnavailable)
		}
		return errs
	}
	s.mu.Lock()
	s.seen = append(s.seen, messages...)
	s.mu.Unlock()
	return s.to(ctx, messages)
}

func (s *shaky) told() []outbox.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

func TestShipping_AMessageForWhichThereWasNoTimeIsNotAtFault(t *testing.T) {
	w := newWorld(t)
	w.place("k")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.api.deliver(ctx, []outbox.Message{w.next()})[0]; !errors.Is(err, outbox.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

func TestShipping_WhileTheBrokerIsDownNothingIsLostAndTheOrderIsKept(t *testing.T) {
	eachEngine(t, func(w *world) {
		broker := &shaky{to: w.api.deliver}
		broker.away.Store(true)
		w.api.move = w.api.cfg.newRelay(w.api.outbox, broker).Run
		stop := w.run(w.api)
		const keys = 5
		for n := range 4 {
			for k := range keys {
				o := publicid.New()
				payload, err := json.Marshal(event{OrderID: orderIDs.Format(o)})
				if err != nil {
					w.t.Fatal(err)
				}
				w.say(outbox.Message{ID: fmt.Sprintf("%d-%d", k, n), Topic: TopicCreated, Key: fmt.Sprint("key-", k), Tenant: "acme", Payload: payload})
			}
			if n == 1 {
				eventually(w.t, "the broker's absence is noticed", func() bool { return strings.Contains(w.log.String(), "outbox_unavailable") })
			}
		}
		if lag := w.lag(); lag.Waiting != 4*keys || lag.Parked != 0 || len(broker.told()) != 0 {
			w.t.Errorf("%+v, %d told", lag, len(broker.told()))
		}
		broker.away.Store(false)
		w.shipped()
		stop()
		last := map[string]string{}
		seen := map[string]bool{}
		for _, m := range broker.told() {
			if seen[m.ID] {
				continue // published again, as a relay does that lost its lease
			}
			if m.ID < last[m.Key] {
				w.t.Errorf("%s came after %s", m.ID, last[m.Key])
			}
			last[m.Key], seen[m.ID] = m.ID, true
		}
		if n := w.shipments(); n != 4*keys {
			w.t.Errorf("%d shipments of %d events", n, 4*keys)
		}
	})
}

// forgetful is an outbox in which nothing can be marked as published.
type forgetful struct{ Outbox }

func (forgetful) Settle(context.Context, string, []outbox.Verdict) error {
	return errors.New("the relay has died")
}

func TestShipping_ARelayThatDiesBetweenPublishAndMarkPublishesTwiceAndTheShipmentExistsOnce(t *testing.T) {
	eachEngine(t, func(w *world) {
		first := w.place("k1")
		broker := &shaky{to: w.api.deliver}
		ctx, die := context.WithCancel(w.t.Context())
		dead := outbox.NewRelay(forgetful{w.store.Outbox()}, broker, outbox.Config{})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			dead.Run(ctx)
		}()
		eventually(w.t, "it is published", func() bool { return w.shipments() == 1 })
		die()
		<-ended
		if lag := w.lag(); lag.Waiting != 1 {
			w.t.Fatalf("it is marked: %+v", lag)
		}
		if err := w.free(); err != nil {
			w.t.Fatal(err)
		}
		w.api.move = w.api.cfg.newRelay(w.api.outbox, broker).Run
		w.run(w.api)
		w.shipped()
		told := broker.told()
		if len(told) < 2 || told[0].ID != told[1].ID || told[0].Key != first.order.ID {
			w.t.Errorf("published: %+v", told)
		}
		if n := w.shipments(); n != 1 {
			w.t.Errorf("%d shipments", n)
		}
	})
}

func TestShipping_EventsOutliveTheirServer(t *testing.T) {
	eachEngine(t, func(w *world) {
		w.place("k1") // by a server that publishes nothing
		later := openWorld(w.t, w.on)
		later.run(later.api)
		later.shipped()
		if n := w.shipments(); n != 1 {
			w.t.Errorf("%d shipments", n)
		}
	})
}
