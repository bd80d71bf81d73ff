// Package broker publishes the messages of an outbox through NATS JetStream or
// RabbitMQ and hands them to a consumer.
//
// A message that the broker acknowledged survives the death of its process, and also the
// loss of power if the broker flushes messages before it acknowledges them (docs/outbox-inbox.md). Open
// does not accept a NATS stream that can lose such a message. A message that a consumer
// did not acknowledge is redelivered, also when the consumer's process died. Messages with
// one ordering key are handled one after another, in the order of their arrival; one
// that fails is redelivered later, after the others.
//
// Most applications do not need such a package: watermillonce publishes through any
// broker that Watermill supports. This package sends a whole batch before it waits,
// which is twice as fast on NATS and six times as fast on RabbitMQ
// (docs/benchmarks.md), and it leaves an event in the outbox while RabbitMQ has no
// queue for it.
package broker

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/outbox"
)

// headerTopic carries the topic, which a subject or a routing key may have to spell
// differently.
const headerTopic = "Onlyonce-Topic"

// headerCreated carries the time of the message over NATS, which has no property for it, in
// seconds since 1970-01-01 UTC.
const headerCreated = "Onlyonce-Created"

// A Broker is a connection to a broker that reconnects by itself.
type Broker interface {
	outbox.Publisher

	// Consume calls handle for the messages, concurrently, until ctx ends, and
	// returns when the running calls have returned. Every consumer name gets every
	// message that is published after its first Consume, as long as somebody does not
	// unbind or delete its queue in RabbitMQ. A message that is published before the first
	// Consume of all is not lost: NATS keeps it for every consumer, and RabbitMQ does not
	// accept it unless a queue of another program gets it. Config.Consumers has no such
	// exceptions. A message for which handle returns an error is redelivered later.
	Consume(ctx context.Context, consumer string, handle Handler) error

	// Redelivery is how long the broker waits for a consumer before it redelivers a
	// message.
	Redelivery() time.Duration

	Close() error
}

// A Handler handles a message.
type Handler func(ctx context.Context, m outbox.Message) error

// A Config holds the settings of a Broker. The zero Config is usable.
type Config struct {
	Name     string        // the name of the stream and of its subjects, or of the exchange; default "onlyonce"
	AckWait  time.Duration // NATS: how long the server waits for a consumer before it redelivers; default DefaultAckWait
	Handlers int           // the number of messages that are handled at a time; default 32

	// Consumers are the names of consumers that must get every message. RabbitMQ accepts a
	// message that any queue gets, also one of another program. Publish therefore publishes
	// nothing until each of these consumers has a queue, and binds the queues again every few
	// seconds. NATS keeps every message for every consumer. Default: none.
	Consumers []string
}

// These are the defaults of a Config.
const (
	DefaultName    = "onlyonce"
	DefaultAckWait = 30 * time.Second
)

func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name = DefaultName
	}
	if c.AckWait == 0 {
		c.AckWait = DefaultAckWait
	}
	if c.Handlers == 0 {
		c.Handlers = 32
	}
	return c
}

// Forms lists the forms of a broker's URL, for messages.
const Forms = "nats://HOST:4222 or amqp://USER:PASSWORD@HOST:5672"

// CheckURL returns an error unless address is the URL of a broker: nats://host:4222,
// tls://host:4222, amqp://user:password@host:5672/vhost or amqps://…. The error does not
// repeat it, because it may contain a password.
func CheckURL(address string) error {
	scheme, rest, _ := strings.Cut(address, "://")
	if rest == "" || !slices.Contains([]string{"nats", "tls", "amqp", "amqps"}, scheme) {
		return errors.New("this is not the URL of a broker: write " + Forms)
	}
	list := []string{address}
	if !strings.HasPrefix(scheme, "amqp") { // the URL of NATS may be a list
		list = strings.Split(address, ",")
	}
	for _, one := range list {
		if !strings.Contains(one, "://") {
			one = scheme + "://" + one
		}
		if _, err := url.Parse(one); err != nil { // whose text may contain the password
			return errors.New("this is not a valid URL: write " + Forms + ", and percent-encode characters such as / ? # % @ : in the user and the password (%2F for /)")
		}
	}
	return nil
}

// Open connects to the broker at a URL.
func Open(ctx context.Context, address string, cfg Config) (b Broker, err error) {
	cfg = cfg.withDefaults()
	if err := CheckURL(address); err != nil {
		return nil, fmt.Errorf("broker: open: %w", err)
	}
	if strings.HasPrefix(address, "amqp") {
		b, err = openAMQP(ctx, address, cfg)
	} else {
		b, err = openNATS(ctx, address, cfg)
	}
	if err != nil {
		return nil, fmt.Errorf("broker: open %s: %w", redacted(address), err)
	}
	return b, nil
}

// redacted returns the address without its password, or its token: NATS takes a user
// without a password for one.
func redacted(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "the broker"
	}
	if _, set := u.User.Password(); u.User != nil && !set && (u.Scheme == "nats" || u.Scheme == "tls") {
		u.User = url.User("xxxxx")
	}
	return u.Redacted()
}

// unavailable marks err as a failure of the broker, not of the message.
func unavailable(err error) error { return fmt.Errorf("%w: %w", outbox.ErrUnavailable, err) }

// noRoute says that the broker takes others.
func noRoute(err error) error { return fmt.Errorf("%w: %w", outbox.ErrNoRoute, err) }

// name turns a topic into a name that every broker accepts: it has only letters,
// digits, dots, hyphens and underscores.
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

// message returns the message that was published.
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

// A delivery is one delivery of a message to a consumer.
type delivery struct {
	message outbox.Message
	tries   int // how often the message was delivered; 0: unknown
	ack     func() error
	retry   func(after time.Duration) error
}

// lanes handles deliveries: those with one ordering key in one lane, one after another.
type lanes struct {
	all  []chan delivery
	seed maphash.Seed
	next int
	done sync.WaitGroup
}

// openLanes starts n lanes. After ctx has ended, they finish the deliveries they have.
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

// add adds a delivery to its lane. Only one goroutine may call it.
func (l *lanes) add(d delivery) {
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

// handle ignores errors of acknowledging, because the broker then redelivers.
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

// ErrElsewhere means that a message is for another consumer with the same name, which may get
// each delivery or not.
var ErrElsewhere = errors.New("the message is for another consumer")

// These bound the time until a message is redelivered: one that could not be handled, and one
// that is for another consumer.
const (
	longestRetry     = 30 * time.Second
	longestElsewhere = 2 * time.Second
)

// retryAfter returns after which time a redelivery is worthwhile. For a message that is for
// another consumer, it is random: brokers let consumers take turns, so that two messages that
// are redelivered at the same time could each come to the wrong one again and again.
func retryAfter(err error, tries int) time.Duration {
	var busy *onlyonce.InFlightError
	if errors.As(err, &busy) {
		return min(max(busy.RetryAfter, 100*time.Millisecond), longestRetry)
	}
	after := 100 * time.Millisecond << min(max(tries-1, 0), 10)
	if errors.Is(err, ErrElsewhere) {
		return rand.N(min(after, longestElsewhere))
	}
	return min(after, longestRetry)
}

// final returns err if retrying would return the same error, and otherwise nil.
func final(err error, again bool) error {
	if again {
		return err
	}
	return nil
}

// persist calls consume repeatedly until ctx ends: after a short pause if a message
// came, and otherwise after increasing pauses.
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
