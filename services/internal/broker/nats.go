package broker

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/outbox"
)

// A natsBroker has one stream, whose subjects are its name and the topics.
type natsBroker struct {
	conn *nats.Conn
	js   jetstream.JetStream
	cfg  Config
}

// asyncLimit is how many messages may be without an acknowledgement.
const asyncLimit = 2048

// subjects are those of all topics.
func (c Config) subjects() string { return c.Name + ".>" }

func openNATS(ctx context.Context, address string, cfg Config) (*natsBroker, error) {
	conn, err := nats.Connect(address, nats.Name("onlyonce"), nats.MaxReconnects(-1), nats.ReconnectWait(250*time.Millisecond), nats.ReconnectBufSize(-1))
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(asyncLimit))
	if err != nil {
		conn.Close()
		return nil, err
	}
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: cfg.Name, Subjects: []string{cfg.subjects()}, Storage: jetstream.FileStorage})
	if err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		conn.Close()
		return nil, err
	}
	return &natsBroker{conn: conn, js: js, cfg: cfg}, nil
}

func (b *natsBroker) Redelivery() time.Duration { return b.cfg.AckWait }

func (b *natsBroker) Close() error {
	b.conn.Close()
	return nil
}

// Publish sends all messages and then waits for the acknowledgements. The stream
// drops a message that comes a second time within two minutes.
func (b *natsBroker) Publish(ctx context.Context, messages []outbox.Message) []error {
	errs := make([]error, len(messages))
	futures := make([]jetstream.PubAckFuture, len(messages))
	for i, m := range messages {
		if errs[i] = instructs(m); errs[i] != nil {
			continue
		}
		future, err := b.js.PublishMsgAsync(b.encode(m), jetstream.WithMsgID(identity(m)))
		if err != nil {
			errs[i] = blame(err)
			continue
		}
		futures[i] = future
	}
	unanswered := false
	for i, future := range futures {
		if future == nil {
			continue
		}
		select {
		case <-future.Ok():
		case err := <-future.Err():
			errs[i] = blame(err)
			unanswered = unanswered || errors.Is(err, jetstream.ErrNoStreamResponse)
		case <-ctx.Done():
			errs[i] = unavailable(context.Cause(ctx))
		}
	}
	if unanswered && b.takesSome(ctx) {
		for i, err := range errs {
			if errors.Is(err, jetstream.ErrNoStreamResponse) {
				errs[i] = noRoute(errNoSubject)
			}
		}
	}
	return errs
}

var errNoSubject = errors.New("no subject of the stream fits the topic: others made the stream, or changed it")

// takesSome reports whether there is a stream, whose subjects do not fit every topic. The
// server answers nothing for a topic that no stream takes, nor while there is none.
func (b *natsBroker) takesSome(ctx context.Context) bool {
	stream, err := b.js.Stream(ctx, b.cfg.Name)
	return err == nil && !slices.Contains(stream.CachedInfo().Config.Subjects, b.cfg.subjects())
}

// identity is what the stream knows a message by. Messages of two tenants, of two
// topics, or with two payloads may have the same ID; to the stream, the second
// would be the first again.
func identity(m outbox.Message) string {
	return hex.EncodeToString(onlyonce.Fingerprint([]byte(m.Tenant), []byte(m.Topic), []byte(m.ID), m.Payload))
}

// instructs returns an error for a message with a header by which the server is
// told what to do: to delete all others, say, or to reject this one for ever.
func instructs(m outbox.Message) error {
	for name := range m.Headers {
		if len(name) >= len(ownPrefix) && strings.EqualFold(name[:len(ownPrefix)], ownPrefix) {
			return fmt.Errorf("NATS takes the header %q for an instruction to itself: give it a name that does not begin with %s", name, ownPrefix)
		}
	}
	return nil
}

// ownPrefix begins the names of NATS' own headers.
const ownPrefix = "Nats-"

func (b *natsBroker) encode(m outbox.Message) *nats.Msg {
	header := make(nats.Header, len(m.Headers)+2)
	for name, value := range m.Headers {
		header[name] = []string{value}
	}
	header[headerTopic] = []string{m.Topic}
	return &nats.Msg{Subject: b.cfg.Name + "." + name(m.Topic), Header: header, Data: m.Payload}
}

// tooLarge is the server's code for a message that is larger than the stream takes.
const tooLarge = 10054

// blame tells the broker's trouble from a message that it will never take.
func blame(err error) error {
	var rejected *jetstream.APIError
	if errors.Is(err, nats.ErrMaxPayload) || errors.As(err, &rejected) && rejected.ErrorCode == tooLarge {
		return err
	}
	return unavailable(err)
}

// maxPending is how many messages may be without an acknowledgement. Those that
// failed and come again later count, and must not keep up the others.
const maxPending = 10000

// Consume has a durable consumer, which begins with what the stream has: a relay
// may have published before there was a consumer.
func (b *natsBroker) Consume(ctx context.Context, consumer string, handle Handler) error {
	return persist(ctx, func() (bool, error) {
		c, err := b.js.CreateOrUpdateConsumer(ctx, b.cfg.Name, jetstream.ConsumerConfig{
			Durable: name(consumer), AckPolicy: jetstream.AckExplicitPolicy, AckWait: b.cfg.AckWait,
			DeliverPolicy: jetstream.DeliverAllPolicy, MaxAckPending: maxPending,
		})
		if err != nil {
			var rejected jetstream.JetStreamError
			return false, final(err, errors.As(err, &rejected) && rejected.APIError() != nil || b.conn.IsClosed())
		}
		return b.consume(ctx, c, handle)
	})
}

// consume handles what comes until ctx ends or the consumer is gone.
func (b *natsBroker) consume(ctx context.Context, c jetstream.Consumer, handle Handler) (came bool, err error) {
	l := openLanes(ctx, b.cfg.Handlers, handle)
	defer l.close()
	incoming, err := c.Messages(jetstream.PullMaxMessages(2 * b.cfg.Handlers))
	if err != nil {
		return false, nil
	}
	defer incoming.Stop()
	stop := context.AfterFunc(ctx, incoming.Drain) // what has come is given back
	defer stop()
	turns := make(chan struct{}, 4*b.cfg.Handlers) // what waits for a handler must not wait for longer than AckWait
	for {
		m, err := incoming.Next()
		switch {
		case errors.Is(err, jetstream.ErrMsgIteratorClosed), errors.Is(err, jetstream.ErrConsumerDeleted):
			return came, nil
		case err == nil: // other errors mend themselves
			came = true
			turns <- struct{}{}
			l.put(b.decode(m, func() { <-turns }))
		}
	}
}

// decode returns a delivery that calls done when it is handled.
func (b *natsBroker) decode(m jetstream.Msg, done func()) delivery {
	headers := make(map[string]string, len(m.Headers()))
	for name, values := range m.Headers() {
		if name != jetstream.MsgIDHeader && len(values) > 0 {
			headers[name] = values[0]
		}
	}
	topic := strings.TrimPrefix(m.Subject(), b.cfg.Name+".") // a stream that others made may have other subjects
	d := delivery{message: message(topic, headers, m.Data()), ack: func() error {
		defer done()
		return m.Ack()
	}}
	if meta, err := m.Metadata(); err == nil {
		d.tries = int(meta.NumDelivered) // a count of deliveries
		d.message.CreatedAt = meta.Timestamp
	}
	d.retry = func(after time.Duration) error {
		defer done()
		return m.NakWithDelay(after)
	}
	return d
}
