// Package broker publishes the messages of an outbox through NATS JetStream or
// RabbitMQ and hands them to a consumer.
//
// What was acknowledged is on the broker's disk; what a consumer did not
// acknowledge is delivered again, also when its process died. Messages of one
// ordering key are handled one after another, in the order in which they came;
// one that fails comes again later, after the others.
//
// Most applications need no such package: watermillonce publishes through any broker
// that Watermill supports. This one sends a whole batch before it waits, which is 2
// times as fast on NATS and 6 times on RabbitMQ (docs/benchmarks.md), and it leaves an
// event in the outbox while RabbitMQ has no queue for it.
package broker

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/outbox"
)

// headerTopic carries the topic, which a subject or routing key may have to
// write differently.
const headerTopic = "Onlyonce-Topic"

// A Broker is a connection that mends itself.
type Broker interface {
	outbox.Publisher

	// Consume hands the messages to handle, many at a time, until ctx ends,
	// and returns when those under way are done. Every consumer's name gets
	// every message that is published after its first Consume, and none is
	// lost that came before the first of all: NATS keeps it for every
	// consumer, RabbitMQ does not take it. What handle returns an error for is
	// delivered again later.
	Consume(ctx context.Context, consumer string, handle Handler) error

	// Redelivery is how long the broker waits for a consumer before it
	// delivers again.
	Redelivery() time.Duration

	Close() error
}

// A Handler takes a message.
type Handler func(ctx context.Context, m outbox.Message) error

// A Config says how a Broker is used. The zero Config is usable.
type Config struct {
	Name     string        // of the stream and its subjects, of the exchange; default "onlyonce"
	AckWait  time.Duration // NATS: how long it waits for a consumer before it delivers again; default 30s
	Handlers int           // how many messages are handled at a time; default 32
}

func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name = "onlyonce"
	}
	if c.AckWait == 0 {
		c.AckWait = 30 * time.Second
	}
	if c.Handlers == 0 {
		c.Handlers = 32
	}
	return c
}

// Open connects to the broker at a URL: nats://host:4222, tls://host:4222,
// amqp://user:password@host:5672/vhost or amqps://….
func Open(ctx context.Context, address string, cfg Config) (b Broker, err error) {
	cfg = cfg.withDefaults()
	scheme, _, _ := strings.Cut(address, "://")
	switch scheme {
	case "nats", "tls":
		b, err = openNATS(ctx, address, cfg)
	case "amqp", "amqps":
		b, err = openAMQP(ctx, address, cfg)
	default:
		return nil, fmt.Errorf("broker: open: there is no broker %q: write nats://… or amqp://…", scheme)
	}
	if err != nil {
		return nil, fmt.Errorf("broker: open %s: %w", redacted(address), err)
	}
	return b, nil
}

// redacted is the address without its password.
func redacted(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "the broker"
	}
	return u.Redacted()
}

// unavailable says that the broker, and not the message, is to blame.
func unavailable(err error) error { return fmt.Errorf("%w: %w", outbox.ErrUnavailable, err) }

// noRoute says that the broker takes others.
func noRoute(err error) error { return fmt.Errorf("%w: %w", outbox.ErrNoRoute, err) }

// name makes a topic one that every broker takes: of letters, digits, dots,
// hyphens and underscores.
func name(topic string) string {
	var b strings.Builder
	for _, r := range []byte(topic) {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '.', r == '-', r == '_':
			b.WriteByte(r)
		default:
			fmt.Fprintf(&b, "=%02X", r)
		}
	}
	for strings.Contains(b.String(), "..") || strings.HasPrefix(b.String(), ".") || strings.HasSuffix(b.String(), ".") {
		return strings.ReplaceAll(b.String(), ".", "=2E")
	}
	return b.String()
}

// message is what was published.
func message(topic string, headers map[string]string, payload []byte) outbox.Message {
	if own := headers[headerTopic]; own != "" {
		topic = own
		delete(headers, headerTopic)
	}
	return outbox.Message{
		ID: headers[outbox.HeaderID], Topic: topic, Key: headers[outbox.HeaderKey], Tenant: headers[outbox.HeaderTenant],
		Headers: headers, Payload: payload,
	}
}

// A delivery is a message that is to be handled.
type delivery struct {
	message outbox.Message
	tries   int // how often it was delivered, if that is known; otherwise 0
	ack     func() error
	retry   func(after time.Duration) error
}

// lanes handle deliveries: those of one key in one lane, one after another.
type lanes struct {
	all  []chan delivery
	seed maphash.Seed
	next int
	done sync.WaitGroup
}

// openLanes starts them; they go on with what they have when ctx has ended.
func openLanes(ctx context.Context, n int, handle Handler) *lanes {
	l := &lanes{all: make([]chan delivery, n), seed: maphash.MakeSeed()}
	for i := range l.all {
		lane := make(chan delivery, 16)
		l.all[i] = lane
		l.done.Go(func() {
			for d := range lane {
				d.handle(ctx, handle)
			}
		})
	}
	return l
}

// put is called by one goroutine.
func (l *lanes) put(d delivery) {
	i := l.next
	if key := d.message.Key; key != "" {
		i = int(maphash.String(l.seed, key) % uint64(len(l.all)))
	} else {
		l.next = (l.next + 1) % len(l.all)
	}
	l.all[i] <- d
}

func (l *lanes) close() {
	for _, lane := range l.all {
		close(lane)
	}
	l.done.Wait()
}

// handle does not tell the broker's trouble: it delivers again.
func (d delivery) handle(ctx context.Context, handle Handler) {
	if ctx.Err() != nil {
		_ = d.retry(0)
		return
	}
	if err := handle(context.WithoutCancel(ctx), d.message); err != nil {
		_ = d.retry(retryAfter(err, d.tries))
		return
	}
	_ = d.ack()
}

// longestRetry bounds how long a message waits that could not be handled.
const longestRetry = 30 * time.Second

// retryAfter is when it is worth to deliver again.
func retryAfter(err error, tries int) time.Duration {
	var busy *onlyonce.InFlightError
	if errors.As(err, &busy) {
		return min(max(busy.RetryAfter, 100*time.Millisecond), longestRetry)
	}
	return min(100*time.Millisecond<<min(max(tries-1, 0), 10), longestRetry)
}

// final is err if the broker will say the same again, and otherwise nil.
func final(err error, again bool) error {
	if again {
		return err
	}
	return nil
}

// persist consumes again and again until ctx ends: soon when something came, and
// else less and less often.
func persist(ctx context.Context, consume func() (came bool, err error)) error {
	const soon = 100 * time.Millisecond
	for pause := soon; ctx.Err() == nil; pause = min(2*pause, 5*time.Second) {
		came, err := consume()
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("broker: consume: %w", err)
		}
		if came {
			pause = soon
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}
