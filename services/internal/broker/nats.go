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

// A natsBroker has one stream, whose subjects are its name followed by the topics.
type natsBroker struct {
	conn *nats.Conn
	js   jetstream.JetStream
	cfg  Config
}

// asyncLimit is the largest number of published messages without an acknowledgment.
const asyncLimit = 2048

// subjects returns the pattern that matches the subjects of all topics.
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

// Publish sends all messages and then waits for the acknowledgments. The stream drops
// a message that it received already within two minutes.
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

var errNoSubject = errors.New("no subject of the stream matches the topic: another program created or changed the stream")

// takesSome reports whether the stream exists but its subjects do not match every
// topic. The server sends no response for a topic that no stream takes, which also
// happens while there is no stream.
func (b *natsBroker) takesSome(ctx context.Context) bool {
	stream, err := b.js.Stream(ctx, b.cfg.Name)
	return err == nil && !slices.Contains(stream.CachedInfo().Config.Subjects, b.cfg.subjects())
}

// identity returns the ID by which the stream recognizes duplicates. Messages of two
// tenants, of two topics, or with two payloads may have the same message ID, and must
// not count as duplicates.
func identity(m outbox.Message) string {
	return hex.EncodeToString(onlyonce.Fingerprint([]byte(m.Tenant), []byte(m.Topic), []byte(m.ID), m.Payload))
}

// instructs returns an error for a message with a header that is an instruction to the
// server, such as to delete all other messages, or to reject this one forever.
func instructs(m outbox.Message) error {
	for name := range m.Headers {
		if len(name) >= len(ownPrefix) && strings.EqualFold(name[:len(ownPrefix)], ownPrefix) {
			return fmt.Errorf("NATS treats the header %q as an instruction to the server: use a name that does not begin with %s", name, ownPrefix)
		}
	}
	return nil
}

// ownPrefix is the prefix of the headers that NATS itself uses.
const ownPrefix = "Nats-"

func (b *natsBroker) encode(m outbox.Message) *nats.Msg {
	header := make(nats.Header, len(m.Headers)+2)
	for name, value := range m.Headers {
		header[name] = []string{value}
	}
	header[headerTopic] = []string{m.Topic}
	return &nats.Msg{Subject: b.cfg.Name + "." + name(m.Topic), Header: header, Data: m.Payload}
}

// tooLarge is the server's code for a message that is larger than the stream allows.
const tooLarge = 10054

// blame marks an error as the broker's, unless the broker will never accept the
// message.
func blame(err error) error {
	var rejected *jetstream.APIError
	if errors.Is(err, nats.ErrMaxPayload) || errors.As(err, &rejected) && rejected.ErrorCode == tooLarge {
		return err
	}
	return unavailable(err)
}

// maxPending is the largest number of delivered messages without an acknowledgment.
// Messages that failed and are redelivered later count, and must not delay the others.
const maxPending = 10000

// Consume uses a durable consumer that begins with the first message of the stream,
// because a relay may have published before there was a consumer.
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

// consume handles messages until ctx ends or the consumer no longer exists.
func (b *natsBroker) consume(ctx context.Context, c jetstream.Consumer, handle Handler) (came bool, err error) {
	l := openLanes(ctx, b.cfg.Handlers, handle)
	defer l.close()
	incoming, err := c.Messages(jetstream.PullMaxMessages(2 * b.cfg.Handlers))
	if err != nil {
		return false, nil
	}
	defer incoming.Stop()
	stop := context.AfterFunc(ctx, incoming.Drain) // returns received messages to the stream
	defer stop()
	turns := make(chan struct{}, 4*b.cfg.Handlers) // so that no message waits for a handler for longer than AckWait
	for {
		m, err := incoming.Next()
		switch {
		case errors.Is(err, jetstream.ErrMsgIteratorClosed), errors.Is(err, jetstream.ErrConsumerDeleted):
			return came, nil
		case err == nil: // the client recovers from other errors by itself
			came = true
			turns <- struct{}{}
			l.put(b.decode(m, func() { <-turns }))
		}
	}
}

// decode returns a delivery that calls done when it has been handled.
func (b *natsBroker) decode(m jetstream.Msg, done func()) delivery {
	headers := make(map[string]string, len(m.Headers()))
	for name, values := range m.Headers() {
		if name != jetstream.MsgIDHeader && len(values) > 0 {
			headers[name] = values[0]
		}
	}
	topic := strings.TrimPrefix(m.Subject(), b.cfg.Name+".") // a stream that others created may have other subjects
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
