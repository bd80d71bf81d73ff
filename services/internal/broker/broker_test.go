package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/services/internal/apitest"
)

// ackWait is after how long NATS delivers again: longer than any machine takes to
// handle a message, and shorter than a test waits for one that was lost.
const (
	ackWait  = 30 * time.Second
	patience = 2 * time.Minute
)

func TestBroker_AMessageComesOutAsItWentIn(t *testing.T) {
	each(t, func(t *testing.T, b Broker) {
		r := receive(t, b, "one", nil)
		want := made(t, outbox.Message{
			Topic: "orders.créated > *", Key: "key ö", Tenant: "acme", Payload: []byte{0, 1, 0xff},
			Headers: map[string]string{outbox.HeaderTraceparent: "00-1-2-01", "x": "ö y"}, CreatedAt: time.Now().Add(-time.Hour),
		})
		publish(t, b, want)
		eventually(t, "it came", func() bool { return r.count() == 1 })
		r.stop()
		got := r.last
		if got.ID != want[0].ID || got.Topic != want[0].Topic || got.Key != want[0].Key || got.Tenant != want[0].Tenant ||
			!maps.Equal(got.Headers, want[0].Headers) || string(got.Payload) != string(want[0].Payload) {
			t.Errorf("got %+v, want %+v", got, want[0])
		}
		if !got.CreatedAt.Equal(want[0].CreatedAt.Truncate(time.Second)) {
			t.Errorf("it was created at %v, want %v", got.CreatedAt, want[0].CreatedAt)
		}
	})
}

func TestBroker_ManyMessagesComeInOrderPerKeyToEveryConsumer(t *testing.T) {
	each(t, func(t *testing.T, b Broker) {
		one, two := receive(t, b, "one", nil), receive(t, b, "two", nil)
		const n = 1500
		var list []outbox.Message
		for i := range n {
			list = append(list, outbox.Message{Topic: "t", Key: fmt.Sprint(i % 50), Payload: []byte(fmt.Sprintf("%05d", i))})
		}
		publish(t, b, made(t, list...))
		eventually(t, "all came to both", func() bool { return one.count() >= n && two.count() >= n })
		for _, r := range []*receiver{one, two} {
			r.stop()
			for key, got := range r.got {
				if !slices.IsSorted(got) || len(got) != n/50 {
					t.Errorf("key %s: %v", key, got)
				}
			}
		}
	})
}

func TestBroker_AMessageThatWasNotHandledComesAgain(t *testing.T) {
	each(t, func(t *testing.T, b Broker) {
		r := receive(t, b, "one", map[string][]error{"a": {errors.New("no"), &onlyonce.InFlightError{RetryAfter: time.Millisecond}}})
		publish(t, b, made(t, outbox.Message{Topic: "t", Payload: []byte("a")}, outbox.Message{Topic: "t", Payload: []byte("b")}))
		eventually(t, "both came", func() bool { return r.count() == 2 })
	})
}

func TestBroker_MessagesThatComeAgainLaterKeepUpNoOthers(t *testing.T) {
	each(t, func(t *testing.T, b Broker) {
		if _, ok := b.(*natsBroker); !ok {
			t.Skip("NATS only: RabbitMQ redelivers at once")
		}
		fails := make(map[string][]error)
		var list []outbox.Message
		for i := range 300 {
			payload := fmt.Sprint("bad ", i)
			fails[payload] = []error{&onlyonce.InFlightError{RetryAfter: longestRetry}}
			list = append(list, outbox.Message{Topic: "t", Payload: []byte(payload)})
		}
		r := receive(t, b, "one", fails)
		publish(t, b, made(t, append(list, outbox.Message{Topic: "t", Payload: []byte("good")})...))
		eventually(t, "the good one came", func() bool { return r.has("good") })
		if n := r.count(); n != 1 {
			t.Errorf("it came after %d that had come again", n-1)
		}
	})
}

// The exchange may be deleted, or the queue unbound, while its consumer runs.
func TestBroker_AConsumerBindsItsQueueAgain(t *testing.T) {
	each(t, func(t *testing.T, b Broker) {
		a, ok := b.(*amqpBroker)
		if !ok {
			t.Skip("RabbitMQ only: NATS has no exchanges")
		}
		r := receive(t, b, "one", nil)
		ch, err := a.incoming.channel(a.cfg.Name)
		if err == nil {
			err = ch.ExchangeDelete(a.cfg.Name, false, false)
		}
		if err != nil {
			t.Fatal(err)
		}
		list := made(t, outbox.Message{Topic: "t", Payload: []byte("a")})
		eventually(t, "it is published", func() bool { return errors.Join(b.Publish(t.Context(), list)...) == nil })
		eventually(t, "it came", func() bool { return r.has("a") })
	})
}

// RabbitMQ takes headers that its client rejects, with its connection, at every delivery.
func TestBroker_AMessageThatTheClientCannotReadIsLogged(t *testing.T) {
	each(t, func(t *testing.T, b Broker) {
		a, ok := b.(*amqpBroker)
		if !ok {
			t.Skip("NATS has no nested headers")
		}
		var log apitest.Log
		before := slog.Default()
		slog.SetDefault(log.Logger())
		t.Cleanup(func() { slog.SetDefault(before) })
		receive(t, b, "one", nil)
		ch, err := a.outgoing.channel(a.cfg.Name)
		if err != nil {
			t.Fatal(err)
		}
		deep := amqp.Table{"x": "y"}
		for range 40 {
			deep = amqp.Table{"x": deep}
		}
		if err := ch.Publish(a.cfg.Name, "t", true, false, amqp.Publishing{Headers: deep}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the log says so", func() bool { return strings.Contains(log.String(), "the connection of the consumer to RabbitMQ broke") })
	})
}

func TestBroker_AConsumerSurvivesThatItsExchangeIsDeletedBeforeItIsBound(t *testing.T) {
	each(t, func(t *testing.T, b Broker) {
		a, ok := b.(*amqpBroker)
		if !ok {
			t.Skip("RabbitMQ only: NATS has no exchanges")
		}
		err := a.declareAs(t.Context(), a.cfg.Name+".one", func(ch *amqp.Channel, name string, durable, autoDelete, exclusive, noWait bool, args amqp.Table) (amqp.Queue, error) {
			if err := ch.ExchangeDelete(a.cfg.Name, false, false); err != nil {
				t.Fatal(err)
			}
			return ch.QueueDeclare(name, durable, autoDelete, exclusive, noWait, args)
		})
		if err == nil || rejectedForGood(err) {
			t.Errorf("%v ends the consumer, or was expected and did not come", err)
		}
	})
}

// By default, a queue with a limit drops its oldest message when it is full. A limit may come from
// a policy, which RabbitMQ does not show to a client and which an argument of the queue overrides.
func TestBroker_AQueueRejectsWhatItHasNoRoomForUnlessAnotherProgramDeclaredIt(t *testing.T) {
	each(t, func(t *testing.T, b Broker) {
		a, ok := b.(*amqpBroker)
		if !ok {
			t.Skip("RabbitMQ only: NATS has no queues")
		}
		ch, err := a.incoming.channel(a.cfg.Name)
		if err == nil {
			_, err = ch.QueueDeclare(a.cfg.Name+".two", true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
		}
		if err != nil {
			t.Fatal(err)
		}
		one, two := receive(t, b, "one", nil), receive(t, b, "two", nil)
		publish(t, b, made(t, outbox.Message{Topic: "t", Payload: []byte("a")}))
		eventually(t, "both get it", func() bool { return one.has("a") && two.has("a") })
		one.stop()
		if _, err := ch.QueueDeclare(a.cfg.Name+".one", true, false, false, false, amqp.Table{"x-overflow": "reject-publish"}); err != nil {
			t.Errorf("it does not reject: %v", err)
		}
	})
}

// A transient queue is gone when RabbitMQ restarts, and an auto-delete queue when its consumer ends.
func TestBroker_AQueueThatDoesNotLastIsNeitherBoundNorConsumed(t *testing.T) {
	for _, queue := range []struct {
		name                string
		durable, autoDelete bool
	}{{"transient", false, false}, {"auto-delete", true, true}} {
		t.Run(queue.name, func(t *testing.T) {
			each(t, func(t *testing.T, b Broker) {
				a, ok := b.(*amqpBroker)
				if !ok {
					t.Skip("RabbitMQ only: NATS has no queues")
				}
				ch, err := a.incoming.channel(a.cfg.Name)
				if err == nil {
					_, err = ch.QueueDeclare(a.cfg.Name+".one", queue.durable, queue.autoDelete, false, false, nil)
				}
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ended := make(chan error, 1)
				go func() {
					ended <- b.Consume(ctx, "one", func(context.Context, outbox.Message) error { return nil })
				}()
				eventually(t, "the consumer ends, or its queue takes a message", func() bool {
					return len(ended) > 0 || b.Publish(t.Context(), made(t, outbox.Message{Topic: "t"}))[0] == nil
				})
				if len(ended) == 0 {
					t.Fatal("the queue took a message")
				}
				if err := <-ended; err == nil || !strings.Contains(err.Error(), a.cfg.Name+".one") {
					t.Errorf("the consumer ended with %v", err)
				}
				if err := b.Publish(t.Context(), made(t, outbox.Message{Topic: "t"}))[0]; !errors.Is(err, outbox.ErrNoRoute) {
					t.Errorf("a message was published: %v", err)
				}
			})
		})
	}
}

// A quorum queue drops a message that it has delivered too often, since RabbitMQ 4 by default after
// 20 failures. A database that is away for a few seconds causes as many.
func TestBroker_AQueueWithADeliveryLimitLosesNoMessageThatKeepsFailing(t *testing.T) {
	each(t, func(t *testing.T, b Broker) {
		a, ok := b.(*amqpBroker)
		if !ok {
			t.Skip("RabbitMQ only: NATS has no queues")
		}
		ch, err := a.incoming.channel(a.cfg.Name)
		if err == nil {
			_, err = ch.QueueDeclare(a.cfg.Name+".one", true, false, false, false, amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": 20})
		}
		if err != nil {
			t.Fatal(err)
		}
		fails := make([]error, 50)
		for i := range fails {
			fails[i] = errors.New("the database is away")
		}
		r, two := receive(t, b, "one", map[string][]error{"a": fails}), receive(t, b, "two", nil)
		want := made(t, outbox.Message{Topic: "orders.créated", Key: "k", Tenant: "acme", Payload: []byte("a"), CreatedAt: time.Now()})
		publish(t, b, want)
		eventually(t, "it came", func() bool { return r.has("a") })
		r.stop()
		two.stop()
		if got := r.last; got.ID != want[0].ID || got.Topic != want[0].Topic || !maps.Equal(got.Headers, want[0].Headers) || !got.CreatedAt.Equal(want[0].CreatedAt.Truncate(time.Second)) {
			t.Errorf("got %+v, want %+v", got, want[0])
		}
		if n := two.count(); n != 1 {
			t.Errorf("another consumer got it %d times", n)
		}
	})
}

// A full queue has no room for a copy, and gets none while the consumer holds all that RabbitMQ delivers
// at a time.
func TestBroker_MessagesThatAFullQueueHasNoRoomToCopyAreHandledAgain(t *testing.T) {
	each(t, func(t *testing.T, b Broker) {
		a, ok := b.(*amqpBroker)
		if !ok {
			t.Skip("RabbitMQ only: NATS has no queues")
		}
		a.cfg.Handlers = 1
		ch, err := a.incoming.channel(a.cfg.Name)
		if err == nil {
			limits := amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": 20, "x-max-length": 1, "x-overflow": "reject-publish"}
			_, err = ch.QueueDeclare(a.cfg.Name+".one", true, false, false, false, limits)
		}
		if err != nil {
			t.Fatal(err)
		}
		fails := make(map[string][]error)
		for _, payload := range []string{"a", "b", "c", "d"} { // as many as are delivered at a time
			for range mostReturns + 1 {
				fails[payload] = append(fails[payload], errors.New("the database is away"))
			}
		}
		r := receive(t, b, "one", fails)
		for payload := range maps.Clone(fails) {
			eventually(t, "it was published", func() bool {
				return b.Publish(t.Context(), made(t, outbox.Message{Topic: "t", Payload: []byte(payload)}))[0] == nil
			})
		}
		eventually(t, "the queue is full", func() bool {
			return b.Publish(t.Context(), made(t, outbox.Message{Topic: "t", Payload: []byte("e")}))[0] != nil
		})
		eventually(t, "all came", func() bool { return r.has("a") && r.has("b") && r.has("c") && r.has("d") && r.has("e") })
	})
}

// Every such message is handled again once a second.
func TestBroker_MessagesThatCannotBeCopiedAreLoggedOnceAMinuteForEachQueue(t *testing.T) {
	var log apitest.Log
	before := slog.Default()
	slog.SetDefault(log.Logger())
	t.Cleanup(func() { slog.SetDefault(before) })
	synctest.Test(t, func(t *testing.T) {
		r := new(amqpBroker).openReturns("one")
		r.copies.outgoing.close()
		tries := 0
		go func() {
			for {
				select {
				case d := <-r.again:
					tries++
					_ = d.retry(0)
				case <-r.consumes.Done():
					return
				}
			}
		}()
		returned := amqp.Delivery{Headers: amqp.Table{"x-delivery-count": int64(mostReturns)}}
		for range 5 {
			r.requeueAfter(returned, outbox.Message{}, 0)
		}
		time.Sleep(2*time.Minute + time.Second/2)
		r.close()
		synctest.Wait()
		if n := strings.Count(log.String(), "a message that RabbitMQ would drop could not be copied"); n != 3 || tries != 5*120 {
			t.Errorf("in 2 minutes, 5 messages were handled again %d times, and logged %d times:\n%s", tries, n, log.String())
		}
	})
}

// A message that is held before it is rejected must not hold up those that are behind it.
func TestBroker_AMessageThatFailedKeepsUpNoOtherWhileRabbitMQHoldsIt(t *testing.T) {
	var rejected atomic.Bool
	d := decodeAMQP(amqp.Delivery{Acknowledger: rejecter{&rejected}}, nil)
	synctest.Test(t, func(t *testing.T) {
		if err := d.retry(time.Hour); err != nil || rejected.Load() {
			t.Errorf("rejected at once: %v, %v", rejected.Load(), err)
		}
		time.Sleep(longestHold)
		synctest.Wait()
		if !rejected.Load() {
			t.Error("it is held for longer")
		}
	})
}

// A rejecter notes that a message was rejected.
type rejecter struct{ rejected *atomic.Bool }

func (r rejecter) Ack(uint64, bool) error        { return nil }
func (r rejecter) Reject(uint64, bool) error     { return nil }
func (r rejecter) Nack(uint64, bool, bool) error { r.rejected.Store(true); return nil }

func TestBroker_AConsumerThatComesBackGetsWhatCameMeanwhile(t *testing.T) {
	each(t, func(t *testing.T, b Broker) {
		receive(t, b, "one", nil).stop()
		publish(t, b, made(t, outbox.Message{Topic: "t", Payload: []byte("a")}))
		r := receive(t, b, "one", nil)
		eventually(t, "it came", func() bool { return r.count() == 1 })
	})
}

func TestBroker_ABrokerGoesOnAfterItsConnectionBroke(t *testing.T) {
	each(t, func(t *testing.T, b Broker) {
		r := receive(t, b, "one", nil)
		for i := range 5 {
			timeout := time.Second // after which a message is sent again whose acknowledgment was lost
			switch b := b.(type) {
			case *natsBroker:
				if err := b.conn.ForceReconnect(); err != nil {
					t.Fatal(err)
				}
			case *amqpBroker:
				timeout = patience // it notices a broken connection, and a slow queue would count as no route
				b.outgoing.sever()
				b.incoming.sever()
			}
			list := made(t, outbox.Message{Topic: "t", Payload: []byte(fmt.Sprint(i))})
			eventually(t, "it is published", func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				err := errors.Join(b.Publish(ctx, list)...)
				if err != nil && !errors.Is(err, outbox.ErrUnavailable) {
					t.Fatal(err)
				}
				return err == nil
			})
			eventually(t, "it came", func() bool { return r.has(fmt.Sprint(i)) })
		}
	})
}

func TestBroker_ABatchIsNotPublishedWhileTheBrokerIsAway(t *testing.T) {
	each(t, func(t *testing.T, b Broker) {
		switch b := b.(type) {
		case *natsBroker:
			b.conn.Close()
			t.Cleanup(func() {
				again, err := Open(context.WithoutCancel(t.Context()), "nats://127.0.0.1:4222", b.cfg)
				if err != nil {
					t.Fatal(err)
				}
				b.conn, b.js = again.(*natsBroker).conn, again.(*natsBroker).js
			})
		case *amqpBroker:
			_ = b.outgoing.conn.Close()
			b.outgoing.address = "amqp://127.0.0.1:1"
		}
		for _, err := range b.Publish(t.Context(), made(t, outbox.Message{Topic: "t"}, outbox.Message{Topic: "t"})) {
			if !errors.Is(err, outbox.ErrUnavailable) {
				t.Errorf("got %v", err)
			}
		}
	})
}

func TestBroker_AMessageThatNATSWillNeverTakeIsToBlameItself(t *testing.T) {
	each(t, func(t *testing.T, b Broker) {
		if _, ok := b.(*natsBroker); !ok {
			t.Skip("NATS only: RabbitMQ accepts any such message")
		}
		errs := b.Publish(t.Context(), made(t, outbox.Message{Topic: "t", Payload: make([]byte, 2<<20)}, outbox.Message{Topic: "t"}))
		if errs[0] == nil || errors.Is(errs[0], outbox.ErrUnavailable) || errs[1] != nil {
			t.Errorf("got %v", errs)
		}
	})
}

func TestBroker_AMessageThatABrokerCantCarryFailsAlone(t *testing.T) {
	each(t, func(t *testing.T, b Broker) {
		bad := map[string]outbox.Message{
			"a long routing key": {Topic: strings.Repeat("ж", 127)},
			"a long name":        {Topic: "t", Headers: map[string]string{strings.Repeat("h", 300): "v"}},
		}
		if _, ok := b.(*natsBroker); ok {
			bad = map[string]outbox.Message{
				"a foreign stream": {Topic: "t", Headers: map[string]string{"Nats-Expected-Stream": "other"}},
				"a rollup":         {Topic: "t", Headers: map[string]string{"nats-rollup": "all"}},
			}
		}
		r := receive(t, b, "one", nil)
		want := 0
		for what, m := range bad {
			all := made(t, outbox.Message{Topic: "t", Payload: []byte("before " + what)}, outbox.Message{Topic: "t"}, outbox.Message{Topic: "t", Payload: []byte("after " + what)})
			all[1].Topic = m.Topic
			maps.Copy(all[1].Headers, m.Headers) // also fields that an outbox rejects
			errs := b.Publish(t.Context(), all)
			if len(errs) != 3 || errs[0] != nil || errs[1] == nil || errors.Is(errs[1], outbox.ErrUnavailable) || errs[2] != nil {
				t.Fatalf("%s: %v", what, errs)
			}
			want += 2
			eventually(t, "the others came", func() bool { return r.has("before "+what) && r.has("after "+what) })
		}
		if n := r.count(); n != want {
			t.Errorf("%d messages came, want %d", n, want)
		}
	})
}

func TestBroker_MessagesWithOneIDAreDifferentIfTheyAreOfTwoTenantsTopicsOrPayloads(t *testing.T) {
	each(t, func(t *testing.T, b Broker) {
		r := receive(t, b, "one", nil)
		publish(t, b, made(t,
			outbox.Message{ID: "1", Tenant: "acme", Topic: "t", Key: "acme", Payload: []byte("a")},
			outbox.Message{ID: "1", Tenant: "other", Topic: "t", Key: "other", Payload: []byte("a")},
			outbox.Message{ID: "1", Tenant: "acme", Topic: "u", Key: "topic", Payload: []byte("a")},
			outbox.Message{ID: "1", Tenant: "acme", Topic: "t", Key: "payload", Payload: []byte("b")},
			outbox.Message{ID: "2", Tenant: "acme", Topic: "t", Key: "id", Payload: []byte("a")},
		))
		eventually(t, "all came", func() bool { return r.count() == 5 })
	})
}

func TestBroker_AStreamThatOthersMadeMayHaveOtherSubjects(t *testing.T) {
	each(t, func(t *testing.T, b Broker) {
		n, ok := b.(*natsBroker)
		if !ok {
			t.Skip("NATS only: an exchange has no subjects")
		}
		foreign := "x" + n.cfg.Name[len(n.cfg.Name)-8:]
		if _, err := n.js.UpdateStream(t.Context(), jetstream.StreamConfig{Name: n.cfg.Name, Subjects: []string{foreign, n.cfg.Name + ".>"}}); err != nil {
			t.Fatal(err)
		}
		if _, err := n.js.Publish(t.Context(), foreign, []byte("theirs")); err != nil {
			t.Fatal(err)
		}
		r := receive(t, b, "one", nil)
		publish(t, b, made(t, outbox.Message{Topic: "t", Payload: []byte("ours")}))
		eventually(t, "both came", func() bool { return r.has("theirs") && r.has("ours") })
	})
}

func TestBroker_ATopicForWhichNATSHasNoSubjectHasNoRouteAndOthersArePublished(t *testing.T) {
	each(t, func(t *testing.T, b Broker) {
		n, ok := b.(*natsBroker)
		if !ok {
			t.Skip("NATS only: an exchange has no subjects")
		}
		if _, err := n.js.UpdateStream(t.Context(), jetstream.StreamConfig{Name: n.cfg.Name, Subjects: []string{n.cfg.Name + ".orders.*"}}); err != nil {
			t.Fatal(err)
		}
		list := made(t, outbox.Message{Topic: "audit"}, outbox.Message{Topic: "orders.created"}, outbox.Message{Topic: "audit"})
		errs := b.Publish(t.Context(), list)
		if !errors.Is(errs[0], outbox.ErrNoRoute) || errs[1] != nil || !errors.Is(errs[2], outbox.ErrNoRoute) {
			t.Errorf("got %v", errs)
		}
		if err := n.js.DeleteStream(t.Context(), n.cfg.Name); err != nil {
			t.Fatal(err)
		}
		for _, err := range b.Publish(t.Context(), list) {
			if !errors.Is(err, outbox.ErrUnavailable) {
				t.Errorf("without a stream: %v", err)
			}
		}
		if _, err := n.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: n.cfg.Name, Subjects: []string{n.cfg.Name + ".>"}}); err != nil {
			t.Fatal(err)
		}
		publish(t, b, list)
	})
}

func TestBroker_ATopicThatIsFullInNATSHasNoRouteAndOthersArePublished(t *testing.T) {
	each(t, func(t *testing.T, b Broker) {
		n, ok := b.(*natsBroker)
		if !ok {
			t.Skip("NATS only: an exchange has no limit")
		}
		full := jetstream.StreamConfig{
			Name: n.cfg.Name, Subjects: []string{n.cfg.subjects()},
			Discard: jetstream.DiscardNew, DiscardNewPerSubject: true, MaxMsgsPerSubject: 1, MaxMsgs: 3,
		}
		if _, err := n.js.UpdateStream(t.Context(), full); err != nil {
			t.Fatal(err)
		}
		errs := b.Publish(t.Context(), made(t, outbox.Message{Topic: "a"}, outbox.Message{Topic: "a"}, outbox.Message{Topic: "b"}))
		if errs[0] != nil || !errors.Is(errs[1], outbox.ErrNoRoute) || errs[2] != nil {
			t.Errorf("got %v", errs)
		}
		errs = b.Publish(t.Context(), made(t, outbox.Message{Topic: "c"}, outbox.Message{Topic: "d"}))
		if errs[0] != nil || !errors.Is(errs[1], outbox.ErrUnavailable) {
			t.Errorf("the stream is full: %v", errs)
		}
	})
}

func TestBroker_WhatNoQueueTakesIsNotPublished(t *testing.T) {
	each(t, func(t *testing.T, b Broker) {
		if _, ok := b.(*amqpBroker); !ok {
			t.Skip("RabbitMQ only: a NATS stream stores the message")
		}
		list := made(t, outbox.Message{Topic: "t", Payload: []byte("a")}, outbox.Message{Topic: "t", Payload: []byte("b")})
		for range 3 {
			for _, err := range b.Publish(t.Context(), list) {
				if !errors.Is(err, outbox.ErrNoRoute) || !errors.Is(err, errNoQueue) {
					t.Errorf("got %v", err)
				}
			}
		}
		r := receive(t, b, "one", nil)
		publish(t, b, list)
		eventually(t, "both came", func() bool { return r.count() == 2 })
	})
}

// RabbitMQ confirms a message that any queue takes, such as one of another program or of an
// alternate exchange.
func TestBroker_AMessageThatTheQueueOfAConsumerWouldNotGetIsNotPublished(t *testing.T) {
	each(t, func(t *testing.T, b Broker) {
		a, ok := b.(*amqpBroker)
		if !ok {
			t.Skip("RabbitMQ only: a NATS stream stores the message")
		}
		a.cfg.Consumers = []string{"one"}
		if err := a.declare(t.Context(), a.cfg.Name+".two"); err != nil {
			t.Fatal(err)
		}
		list := made(t, outbox.Message{Topic: "t", Payload: []byte("a")})
		for range 2 {
			if err := b.Publish(t.Context(), list)[0]; !errors.Is(err, outbox.ErrNoRoute) || !errors.Is(err, errNoQueue) {
				t.Errorf("got %v", err)
			}
		}
		r := receive(t, b, "one", nil)
		publish(t, b, list)
		eventually(t, "it came", func() bool { return r.has("a") })
		r.stop()
		ch, err := a.incoming.channel(a.cfg.Name)
		if err == nil {
			err = ch.QueueUnbind(a.cfg.Name+".one", "#", a.cfg.Name, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		a.boundAt = time.Time{} // a while passes
		publish(t, b, made(t, outbox.Message{Topic: "t", Payload: []byte("b")}))
		r = receive(t, b, "one", nil)
		eventually(t, "it came although the queue was not bound", func() bool { return r.has("b") })
	})
}

func TestBroker_WhatAFullQueueRejectsHasNoRouteAndOthersArePublished(t *testing.T) {
	each(t, func(t *testing.T, b Broker) {
		a, ok := b.(*amqpBroker)
		if !ok {
			t.Skip("RabbitMQ only: a NATS stream has no queues")
		}
		ch, err := a.incoming.channel(a.cfg.Name)
		if err != nil {
			t.Fatal(err)
		}
		defer ch.Close()
		for queue, limits := range map[string]amqp.Table{"one": nil, "two": {"x-max-length": 1, "x-overflow": "reject-publish"}} {
			if _, err := ch.QueueDeclare(a.cfg.Name+"."+queue, true, false, false, false, limits); err != nil {
				t.Fatal(err)
			}
			if err := ch.QueueBind(a.cfg.Name+"."+queue, queue, a.cfg.Name, false, nil); err != nil {
				t.Fatal(err)
			}
		}
		publish(t, b, made(t, outbox.Message{Topic: "two"})) // it is full
		errs := b.Publish(t.Context(), made(t, outbox.Message{Topic: "two"}, outbox.Message{Topic: "one"}, outbox.Message{Topic: "two"}))
		if !errors.Is(errs[0], outbox.ErrNoRoute) || errs[1] != nil || !errors.Is(errs[2], outbox.ErrNoRoute) {
			t.Errorf("got %v", errs)
		}
	})
}

func TestBroker_OfMessagesWithOneIDThoseThatNoQueueTakesAreNotPublished(t *testing.T) {
	each(t, func(t *testing.T, b Broker) {
		a, ok := b.(*amqpBroker)
		if !ok {
			t.Skip("RabbitMQ only: a NATS stream stores the message")
		}
		ch, err := a.outgoing.channel(a.cfg.Name)
		if err != nil {
			t.Fatal(err)
		}
		defer ch.Close()
		if _, err := ch.QueueDeclare(a.cfg.Name+".one", true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		if err := ch.QueueBind(a.cfg.Name+".one", "taken", a.cfg.Name, false, nil); err != nil {
			t.Fatal(err)
		}
		errs := b.Publish(t.Context(), made(t,
			outbox.Message{ID: "1", Tenant: "acme", Topic: "t"},
			outbox.Message{ID: "1", Tenant: "acme", Topic: "taken"},
			outbox.Message{ID: "1", Tenant: "other", Topic: "t"},
			outbox.Message{ID: "1", Tenant: "acme", Topic: "t", Payload: []byte("other")},
			outbox.Message{ID: "1", Tenant: "other", Topic: "taken"},
		))
		for i, taken := range []bool{false, true, false, false, true} {
			if (errs[i] == nil) != taken || !taken && !errors.Is(errs[i], errNoQueue) {
				t.Errorf("message %d: %v", i, errs[i])
			}
		}
	})
}

func TestBroker_AMessageThatRabbitMQWillNeverTakeIsToBlameItself(t *testing.T) {
	each(t, func(t *testing.T, b Broker) {
		if _, ok := b.(*amqpBroker); !ok {
			t.Skip("RabbitMQ only: NATS gives the header CC no meaning")
		}
		r := receive(t, b, "one", nil)
		var list []outbox.Message
		for i := range 100 {
			list = append(list, outbox.Message{Topic: "t", Payload: []byte(fmt.Sprint(i))})
		}
		list = made(t, list...)
		for _, i := range []int{0, 40, 99} {
			list[i].Headers["CC"] = "a copy" // for which RabbitMQ wants a list; Append rejects it now
		}
		for i, err := range b.Publish(t.Context(), list) {
			if rejected := list[i].Headers["CC"] != ""; (err != nil) != rejected || errors.Is(err, outbox.ErrUnavailable) {
				t.Errorf("message %d: %v", i, err)
			}
		}
		eventually(t, "the others came", func() bool { return r.count() >= 97 })
	})
}

func TestBroker_AChannelAfterASeveredConnectionIsOnANewOne(t *testing.T) {
	each(t, func(t *testing.T, b Broker) {
		a, ok := b.(*amqpBroker)
		if !ok {
			t.Skip("RabbitMQ only: the NATS client opens its connections itself")
		}
		for range 20 { // the client may notice the end of a connection at once
			if _, err := a.incoming.channel(a.cfg.Name); err != nil {
				t.Fatal(err)
			}
			a.incoming.sever()
		}
	})
}

// A connection that RabbitMQ closes says nothing about a message, even with the code of one.
func TestBroker_AConnectionThatRabbitMQClosesIsNoMessagesFault(t *testing.T) {
	each(t, func(t *testing.T, b Broker) {
		a, ok := b.(*amqpBroker)
		if !ok {
			t.Skip("RabbitMQ only: NATS has no such codes")
		}
		receive(t, b, "one", nil)
		publish(t, b, made(t, outbox.Message{Topic: "t"}))
		closed := &amqp.Error{Code: amqp.PreconditionFailed, Reason: "PRECONDITION_FAILED", Server: true}
		rejections := make(chan *amqp.Error, 1)
		rejections <- closed
		if a.rejections = rejections; a.rejection() == nil {
			t.Error("while the connection is open, RabbitMQ has closed only the channel, because of a message")
		}
		if err := a.outgoing.conn.Close(); err != nil {
			t.Fatal(err)
		}
		rejections <- closed
		if err := a.rejection(); err != nil {
			t.Errorf("got %v for a connection that was closed", err)
		}
	})
}

func TestBroker_ANATSStreamDropsWhatIsPublishedAgain(t *testing.T) {
	each(t, func(t *testing.T, b Broker) {
		if _, ok := b.(*natsBroker); !ok {
			t.Skip("NATS only: RabbitMQ does not detect duplicates")
		}
		r := receive(t, b, "one", nil)
		list := made(t, outbox.Message{Topic: "t", Key: "k", Payload: []byte("a")})
		publish(t, b, list)
		publish(t, b, list)
		publish(t, b, made(t, outbox.Message{Topic: "t", Key: "k", Payload: []byte("end")})) // of one key: in order
		eventually(t, "the last came", func() bool { return r.has("end") })
		if n := r.count(); n != 2 {
			t.Errorf("%d messages came", n)
		}
	})
}

func TestBroker_AnAddressThatIsNoBrokersIsRejectedWithWhatToWrite(t *testing.T) {
	if _, err := Open(t.Context(), "kafka://x", Config{}); err == nil || !strings.Contains(err.Error(), "nats://") {
		t.Error(err)
	}
	for _, address := range []string{
		"amqp://me:%secret@h", "amqp://me:secret/x@h", "amqp://me:a#secret@h", "nats://me:%secret@h", "nats://me:secret/x@h:4222", "nats://h:4222,nats://me:%secret@h", "nats://h:4222,me:secret/x@h",
	} {
		if err := CheckURL(address); err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "percent-encode") {
			t.Errorf("%s: %v", address, err)
		}
	}
	for _, address := range []string{"nats://h1:4222,nats://me:a@h2:4222", "nats://h1:4222,h2:4222", "amqp://me:a,b%2F@h:5672/vhost", "tls://h:4222", "nats://[::1]:4222"} {
		if err := CheckURL(address); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
	for _, address := range []string{"amqp://me:secret@127.0.0.1:1/", "nats://me:secret@127.0.0.1:1", "nats://secret@127.0.0.1:1", "tls://secret@127.0.0.1:1"} {
		if _, err := Open(t.Context(), address, Config{}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Error(err)
		}
	}
}

func TestBroker_TopicsBecomeNamesThatBrokersTake(t *testing.T) {
	for topic, want := range map[string]string{"orders.created": "orders.created", "a b": "a=20b", ">": "=3E", "a..b": "a=2E=2Eb", ".a": "=2Ea", "a=b": "a=3Db"} {
		if got := name(topic); got != want {
			t.Errorf("%q is %q, want %q", topic, got, want)
		}
	}
}

func TestRetry_AMessageForAnotherConsumerIsOfferedAgainSoonAndAtAnyTime(t *testing.T) {
	elsewhere := fmt.Errorf("not mine: %w", ErrElsewhere)
	times := make(map[time.Duration]bool)
	for range 10 {
		after := retryAfter(elsewhere, 1000)
		if times[after] = true; after >= longestElsewhere {
			t.Errorf("it is delivered again after %v", after)
		}
	}
	if len(times) == 1 {
		t.Error("it is always delivered again after the same time")
	}
	if got := retryAfter(errors.New("no"), 1000); got != longestRetry {
		t.Errorf("a message that fails is delivered again after %v", got)
	}
}
