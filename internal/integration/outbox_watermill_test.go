package integration

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	wnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/onlyonce-go/onlyonce/adapters/watermillonce"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// address is where a broker is.
func address(env, otherwise string) string {
	if own := os.Getenv(env); own != "" {
		return own
	}
	return otherwise
}

// A pubSub is a broker as Watermill knows it, with a topic of its own.
type pubSub struct {
	topic string
	pub   message.Publisher
	subs  []message.Subscriber // two of one group
}

func newNATS(t testing.TB) pubSub {
	t.Helper()
	url := address("ONLYONCE_NATS", "nats://127.0.0.1:4222")
	name := "onlyonce_" + strings.ToLower(rand.Text())
	patient := []nats.Option{nats.Timeout(answerLimit)}
	conn, err := nats.Connect(url, patient...)
	needs.Service(t, "NATS", err)
	js, err := conn.JetStream(nats.MaxWait(answerLimit))
	if err == nil {
		_, err = js.AddStream(&nats.StreamConfig{Name: name, Subjects: []string{name}})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := js.DeleteStream(name); err != nil {
			t.Error(err)
		}
		conn.Close()
	})
	p := pubSub{topic: name}
	stream := wnats.JetStreamConfig{DurablePrefix: name, TrackMsgId: true, ConnectOptions: []nats.JSOpt{nats.MaxWait(answerLimit)}}
	p.pub, err = wnats.NewPublisher(wnats.PublisherConfig{URL: url, NatsOptions: patient, JetStream: stream}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		sub, err := wnats.NewSubscriber(wnats.SubscriberConfig{
			URL: url, NatsOptions: patient, QueueGroupPrefix: name, SubscribersCount: 2, AckWaitTimeout: 5 * time.Second, JetStream: stream,
		}, watermill.NopLogger{})
		if err != nil {
			t.Fatal(err)
		}
		p.subs = append(p.subs, sub)
	}
	return p
}

func newRabbitMQ(t testing.TB) pubSub { return newRabbitMQWith(t, wamqp.DefaultMarshaler{}, nil) }

// newRabbitMQWith declares its queue with arguments.
func newRabbitMQWith(t testing.TB, m wamqp.Marshaler, arguments map[string]any) pubSub {
	t.Helper()
	name := "onlyonce_" + strings.ToLower(rand.Text())
	cfg := wamqp.NewDurableQueueConfig(address("ONLYONCE_AMQP", "amqp://guest:guest@127.0.0.1:5672/"))
	cfg.Publish.ConfirmDelivery = true
	cfg.Marshaler, cfg.Queue.Arguments = m, arguments
	p := pubSub{topic: name}
	pub, err := wamqp.NewPublisher(cfg, watermill.NopLogger{})
	needs.Service(t, "RabbitMQ", err)
	p.pub = pub
	for range 2 {
		sub, err := wamqp.NewSubscriber(cfg, watermill.NopLogger{})
		if err != nil {
			t.Fatal(err)
		}
		p.subs = append(p.subs, sub)
	}
	t.Cleanup(func() {
		conn, err := wamqp.NewConnection(cfg.Connection, watermill.NopLogger{})
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		ch, err := conn.Connection().Channel()
		if err == nil {
			_, err = ch.QueueDelete(name, false, false, false)
		}
		if err != nil {
			t.Error(err)
		}
	})
	return p
}

// A textHeaders drops the headers that watermill-amqp rejects at every delivery, as in
// docs/outbox-inbox.md.
type textHeaders struct{ wamqp.DefaultMarshaler }

func (m textHeaders) Unmarshal(d amqp.Delivery) (*message.Message, error) {
	for name, value := range d.Headers {
		if _, ok := value.(string); !ok {
			delete(d.Headers, name)
		}
	}
	return m.DefaultMarshaler.Unmarshal(d)
}

// A quorum queue counts the deliveries of a message that comes back in a header that is a number.
func TestWatermill_AMessageThatComesBackFromAQuorumQueueIsHandled(t *testing.T) {
	p := newRabbitMQWith(t, textHeaders{}, map[string]any{"x-queue-type": "quorum"})
	in := inbox.New(memstore.New(memstore.Config{}), inbox.Config{Consumer: "shipping", Redelivery: answerLimit})
	deliveries, err := p.subs[0].Subscribe(t.Context(), p.topic)
	if err == nil {
		err = p.pub.Publish(p.topic, message.NewMessage("1", nil))
	}
	if err != nil {
		t.Fatal(err)
	}
	attempts := 0
	handler := watermillonce.Middleware(in)(func(*message.Message) ([]*message.Message, error) {
		if attempts++; attempts == 1 {
			return nil, errors.New("fails the first time")
		}
		return nil, nil
	})
	for range 2 {
		select {
		case msg := <-deliveries:
			if _, err := handler(msg); err != nil {
				msg.Nack()
			} else {
				msg.Ack()
			}
		case <-time.After(answerLimit):
			t.Fatalf("there is no further delivery after %d", attempts)
		}
	}
	if err := errors.Join(p.subs[0].Close(), p.subs[1].Close(), p.pub.Close()); err != nil || attempts != 2 {
		t.Errorf("%d attempts, %v", attempts, err)
	}
}

// twice is a publisher that publishes everything twice, as a relay does that
// dies before it marks the published messages.
type twice struct{ message.Publisher }

func (p twice) Publish(topic string, messages ...*message.Message) error {
	for _, m := range messages {
		again := m.Copy()
		again.UUID = watermill.NewUUID() // so that the broker does not know it again
		again.SetContext(m.Context())
		if err := p.Publisher.Publish(topic, again); err != nil {
			return err
		}
	}
	return p.Publisher.Publish(topic, messages...)
}

func TestWatermill_AnEventThroughWatermillTakesEffectOnce(t *testing.T) {
	for name, open := range map[string]func(testing.TB) pubSub{"NATS": newNATS, "RabbitMQ": newRabbitMQ} {
		t.Run(name, func(t *testing.T) {
			s, db := newPostgresSchema(t).open(t)
			if _, err := db.Exec("CREATE TABLE shipments (message VARCHAR(100) NOT NULL); CREATE TABLE attempts (message VARCHAR(100) NOT NULL)"); err != nil {
				t.Fatal(err)
			}
			eventsTakeEffectOnce(t, s, db, open(t))
		})
	}
}

func eventsTakeEffectOnce(t *testing.T, s *sqlstore.Store, db *sql.DB, p pubSub) {
	const events = 200
	in := inbox.NewTx(s, inbox.Config{Consumer: "shipping", Redelivery: 5 * time.Second, Lease: 2 * time.Second, Wait: time.Second})
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: answerLimit}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	handler := watermillonce.HandlerTx(in, func(ctx context.Context, tx *sql.Tx, msg *message.Message) ([]*message.Message, error) {
		if _, err := tx.ExecContext(ctx, "INSERT INTO shipments (message) VALUES ($1)", msg.Payload); err != nil {
			return nil, err
		}
		var tried int
		if err := db.QueryRowContext(ctx, "WITH this AS (INSERT INTO attempts (message) VALUES ($1)) SELECT count(*) FROM attempts WHERE message = $1", msg.Payload).Scan(&tried); err != nil {
			return nil, err
		}
		if tried == 0 && string(msg.Payload)[0] == '7' {
			return nil, errors.New("fails the first time")
		}
		return nil, nil
	})
	for i, sub := range p.subs {
		router.AddConsumerHandler(fmt.Sprint("shipping ", i), p.topic, sub, func(msg *message.Message) error {
			_, err := handler(msg)
			return err
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- router.Run(ctx) }()
	<-router.Running()
	relay := outbox.NewRelay(s.Outbox(), watermillonce.NewPublisher(twice{p.pub}, watermillonce.Config{}), outbox.Config{})
	relayed := make(chan struct{})
	go func() {
		defer close(relayed)
		relay.Run(ctx)
	}()
	stop := sync.OnceFunc(func() {
		cancel()
		<-relayed
		if err := errors.Join(<-ended, p.pub.Close()); err != nil {
			t.Error(err)
		}
	})
	defer stop()
	for i := range events {
		appendOne(t, s, db, outbox.Message{Topic: p.topic, Payload: []byte(fmt.Sprint(i))})
	}
	deadline := time.Now().Add(2 * answerLimit)
	for {
		var rows, different int
		if err := db.QueryRow("SELECT count(*), count(DISTINCT message) FROM shipments").Scan(&rows, &different); err != nil {
			t.Fatal(err)
		}
		if rows != different {
			t.Fatalf("%d rows of %d events", rows, different)
		}
		if rows == events {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d events after %v", rows, events, 2*answerLimit)
		}
		time.Sleep(20 * time.Millisecond)
	}
	stop() // messages in transit may do harm until then
	var rows int
	if err := db.QueryRow("SELECT count(*) FROM shipments").Scan(&rows); err != nil || rows != events {
		t.Errorf("%d rows of %d events, %v", rows, events, err)
	}
}

// appendOne appends a message in a transaction of its own.
func appendOne(t testing.TB, s *sqlstore.Store, db *sql.DB, m outbox.Message) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err == nil {
		err = s.Outbox().Append(t.Context(), tx, m)
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// BenchmarkPublishThroughWatermill publishes batches of 1,000 messages of 500 bytes, as
// a relay does, and waits for the acknowledgments. BenchmarkPublish of the services'
// broker does the same.
func BenchmarkPublishThroughWatermill(b *testing.B) {
	for name, open := range map[string]func(testing.TB) pubSub{"NATS": newNATS, "RabbitMQ": newRabbitMQ} {
		b.Run(name, func(b *testing.B) {
			to := open(b)
			if queue, ok := to.subs[0].(message.SubscribeInitializer); ok {
				if err := queue.SubscribeInitialize(to.topic); err != nil {
					b.Fatal(err)
				}
			}
			p := watermillonce.NewPublisher(to.pub, watermillonce.Config{})
			batch := make([]outbox.Message, 1000)
			for b.Loop() {
				for i := range batch {
					batch[i] = outbox.Message{ID: rand.Text(), Topic: to.topic, Payload: make([]byte, 500)}
				}
				for _, err := range p.Publish(b.Context(), batch) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.N*len(batch))/b.Elapsed().Seconds(), "messages/s")
		})
	}
}
