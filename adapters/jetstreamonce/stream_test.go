package jetstreamonce_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/jetstreamonce"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/internal/consumertest"
	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// ackWait is longer than most tests take.
const ackWait = 30 * time.Second

// shipping are the settings of the inboxes here.
var shipping = inbox.Config{Consumer: "shipping", Redelivery: ackWait, Observer: onlyonce.DiscardEvents}

func newInbox() *inbox.Inbox { return inbox.New(memstore.New(memstore.Config{}), shipping) }

// quick has short delays, and logs nothing.
var quick = jetstreamonce.Config{Backoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond, Failed: func(context.Context, jetstream.Msg, error) {}}

// A stream is a stream of NATS for one test, with a consumer.
type stream struct {
	t        *testing.T
	conn     *nats.Conn
	js       jetstream.JetStream
	name     string
	consumer jetstream.Consumer
}

// newStream creates a stream on the server of the machine.
func newStream(t *testing.T, settings jetstream.ConsumerConfig) *stream {
	t.Helper()
	conn, err := nats.Connect(cmp.Or(os.Getenv("ONLYONCE_NATS"), "nats://127.0.0.1:4222"))
	needs.Service(t, "NATS", err)
	t.Cleanup(conn.Close)
	s := openStream(t, conn, settings)
	t.Cleanup(func() {
		if err := s.js.DeleteStream(context.WithoutCancel(t.Context()), s.name); err != nil {
			t.Error(err)
		}
	})
	return s
}

// openStream creates a stream.
func openStream(t *testing.T, conn *nats.Conn, settings jetstream.ConsumerConfig) *stream {
	t.Helper()
	s := &stream{t: t, conn: conn, name: "onlyonce_" + strings.ToLower(rand.Text())}
	var err error
	if s.js, err = jetstream.New(conn, jetstream.WithDefaultTimeout(consumertest.Patience)); err == nil {
		_, err = s.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: s.name, Subjects: []string{s.name}})
	}
	if err != nil {
		t.Fatal(err)
	}
	s.consumer = s.newConsumer("shipping", settings)
	return s
}

func (s *stream) newConsumer(name string, settings jetstream.ConsumerConfig) jetstream.Consumer {
	s.t.Helper()
	settings.Durable = name
	if settings.AckWait == 0 {
		settings.AckWait = ackWait
	}
	consumer, err := s.js.CreateOrUpdateConsumer(s.t.Context(), s.name, settings)
	if err != nil {
		s.t.Fatal(err)
	}
	return consumer
}

// publish publishes a message with headers, which are names and values.
func (s *stream) publish(data string, headers ...string) {
	s.t.Helper()
	m := &nats.Msg{Subject: s.name, Data: []byte(data), Header: nats.Header{}}
	for i := 0; i < len(headers); i += 2 {
		m.Header[headers[i]] = []string{headers[i+1]}
	}
	if _, err := s.js.PublishMsg(s.t.Context(), m); err != nil {
		s.t.Fatal(err)
	}
}

// run consumes until stop is called, or until the end of the test. stop returns when Run has.
func (s *stream) run(c *jetstreamonce.Consumer) (stop func()) { return s.runFrom(s.consumer, c) }

func (s *stream) runFrom(from jetstream.Consumer, c *jetstreamonce.Consumer) (stop func()) {
	return consumertest.Run(s.t, func(ctx context.Context) error { return c.Run(ctx, from) })
}

// waitForAcks waits until every message is finished.
func (s *stream) waitForAcks() {
	s.t.Helper()
	consumertest.Eventually(s.t, "all messages are acknowledged", func() bool {
		info, err := s.consumer.Info(s.t.Context())
		if err != nil {
			s.t.Fatal(err)
		}
		return info.NumAckPending == 0 && info.NumPending == 0
	})
}

// A lossy consumer loses acknowledgments on their way to the server, and counts those that say that a
// message is being handled.
type lossy struct {
	jetstream.Consumer
	loses      atomic.Int32 // how many
	inProgress atomic.Int32
	fails      atomic.Int32 // how many calls of Fetch fail
}

func (l *lossy) Fetch(n int, opts ...jetstream.FetchOpt) (jetstream.MessageBatch, error) {
	if l.fails.Add(-1) >= 0 {
		return nil, jetstream.ErrNoHeartbeat
	}
	batch, err := l.Consumer.Fetch(n, opts...)
	return lossyBatch{batch, l}, err
}

type lossyBatch struct {
	jetstream.MessageBatch
	consumer *lossy
}

func (l lossyBatch) Messages() <-chan jetstream.Msg {
	messages := make(chan jetstream.Msg)
	go func() {
		defer close(messages)
		for m := range l.MessageBatch.Messages() {
			messages <- lossyMessage{m, l.consumer}
		}
	}()
	return messages
}

type lossyMessage struct {
	jetstream.Msg
	consumer *lossy
}

func (l lossyMessage) Ack() error {
	if l.consumer.loses.Add(-1) >= 0 {
		return nil
	}
	return l.Msg.Ack()
}

func (l lossyMessage) InProgress() error {
	l.consumer.inProgress.Add(1)
	return l.Msg.InProgress()
}

// A replaced consumer is deleted and created again when messages are fetched.
type replaced struct {
	jetstream.Consumer
	replace func()
}

func (r replaced) Fetch(int, ...jetstream.FetchOpt) (jetstream.MessageBatch, error) {
	r.replace()
	return nil, jetstream.ErrConsumerDeleted
}

// Lines are those of a log, of which it keeps as many as it has room for.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	select {
	case l <- string(line):
	default:
	}
	return len(line), nil
}

// A ledger has a handler that notes its messages.
type ledger struct{ consumertest.Ledger }

func (l *ledger) handle(_ context.Context, m jetstream.Msg) error {
	l.Note(string(m.Data()))
	return nil
}

// messageID are the headers of a message of an outbox.
func messageID(id string) []string { return []string{outbox.HeaderID, id} }
