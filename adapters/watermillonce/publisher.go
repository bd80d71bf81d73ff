package watermillonce

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/onlyonce-go/onlyonce/internal/recovered"
	"github.com/onlyonce-go/onlyonce/outbox"
)

// A Config controls how a publisher is used. The zero Config is usable.
type Config struct {
	// Topic returns the topic to which a message is published; default: its
	// Topic.
	Topic func(outbox.Message) string

	// Rejected reports whether an error is the message's own fault, for example
	// because it is too large, rather than a problem with the broker. Default:
	// an error is the message's own fault if the broker has accepted another
	// message of its topic since the last time it accepted none of them. So one
	// that the broker always rejects waits, with those of its key, until the
	// broker accepts others of its topic; if there may be none, set Rejected. It is
	// not asked about a message for which there was no time.
	Rejected func(error) bool

	InFlight int // how many messages are published at a time, including those whose call has not returned although its context ended; default 64
}

// NewPublisher adapts a Watermill publisher to an outbox.Publisher. The
// Watermill publisher must return only when the broker has stored the message
// durably: with watermill-amqp, set PublishConfig.ConfirmDelivery and leave ChannelPoolSize 0, because
// a pool that has lost its channels blocks forever; with
// watermill-kafka, set Producer.RequiredAcks to sarama.WaitForAll, because by default the
// leader of a partition acknowledges alone; with
// watermill-nats, use JetStream without PublishOptions for asynchronous
// publishing. NewPublisher panics on a nil publisher.
//
// Each message is published with its own call, and many calls run at a time,
// because Watermill's result for several messages does not say which of them
// the broker has. A panic of the Watermill publisher is recovered, logged with its stack
// by slog's default logger, and treated as an error.
//
// An error that is not the message's own fault is outbox.ErrUnavailable if the broker
// accepted nothing at the same time, and otherwise outbox.ErrNoRoute, which delays only
// the messages with its key: its topic may be away while others are not. An error of the
// Watermill publisher that wraps one of these is passed on.
func NewPublisher(to message.Publisher, cfg Config) outbox.Publisher {
	if to == nil {
		panic("watermillonce: NewPublisher without a publisher: pass one of Watermill's")
	}
	if cfg.InFlight < 0 {
		panic(fmt.Sprintf("watermillonce: Config.InFlight is negative (%d): write a positive value, or leave it 0 for the default, 64", cfg.InFlight))
	}
	if cfg.InFlight == 0 {
		cfg.InFlight = 64
	}
	if cfg.Topic == nil {
		cfg.Topic = func(m outbox.Message) string { return m.Topic }
	}
	return &publisher{to: to, cfg: cfg, turns: make(chan struct{}, cfg.InFlight), healthy: make(map[string]bool)}
}

type publisher struct {
	to    message.Publisher
	cfg   Config
	turns chan struct{} // has as many elements as calls of to are under way, also of those that nobody waits for any more

	mu      sync.Mutex
	healthy map[string]bool // topics of which the broker took a message since it last took none
}

// A late error says that a message was not acknowledged before the context ended.
type late struct{ error }

func (e late) Unwrap() error { return e.error }

// Publish hands each message to the publisher.
func (p *publisher) Publish(ctx context.Context, messages []outbox.Message) []error {
	errs := make([]error, len(messages))
	var all sync.WaitGroup
	for i, m := range messages {
		select {
		case p.turns <- struct{}{}:
			all.Go(func() { errs[i] = p.publish(ctx, m) })
		case <-ctx.Done():
			errs[i] = unsent(ctx)
		}
	}
	all.Wait()
	return p.classify(messages, errs)
}

// publish returns when ctx ends, even if the publisher does not observe it. The call that
// is left behind keeps its turn until it returns: a broker that hangs for an hour would
// otherwise gather calls that all publish the same messages when it goes on.
func (p *publisher) publish(ctx context.Context, m outbox.Message) error {
	if ctx.Err() != nil {
		<-p.turns
		return unsent(ctx)
	}
	out := message.NewMessageWithContext(ctx, m.ID, m.Payload)
	out.Metadata = maps.Clone(m.Headers)
	done := make(chan error, 1)
	go func() {
		defer func() { <-p.turns }()
		done <- p.publishOrRecover(ctx, m, out)
	}()
	select {
	case err := <-done:
		if ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
			return late{err}
		}
		return err
	case <-ctx.Done():
		return late{context.Cause(ctx)}
	}
}

func unsent(ctx context.Context) error {
	return fmt.Errorf("%w: there was no time to send the message: %w", outbox.ErrUnavailable, context.Cause(ctx))
}

// publishOrRecover returns the error of the Watermill publisher. A panic is one, too: nobody else could
// recover it, in a goroutine of its own. So is the end of the goroutine.
func (p *publisher) publishOrRecover(ctx context.Context, m outbox.Message, out *message.Message) error {
	err := recovered.Call("the Watermill publisher", func() error { return p.to.Publish(p.cfg.Topic(m), out) })
	recovered.Log(ctx, err, "watermillonce", "message_id", m.ID, "topic", m.Topic)
	return err
}

// classify marks the errors that are the broker's.
func (p *publisher) classify(messages []outbox.Message, errs []error) []error {
	taken, failed := make(map[string]bool), false // by topic
	others := outbox.ErrUnavailable
	for i, err := range errs {
		topic := p.cfg.Topic(messages[i])
		taken[topic] = taken[topic] || err == nil
		if err != nil {
			failed = true
		} else {
			others = outbox.ErrNoRoute
		}
	}
	were := p.note(taken)
	if !failed {
		return nil
	}
	for i, err := range errs {
		if err == nil || errors.Is(err, outbox.ErrUnavailable) || errors.Is(err, outbox.ErrNoRoute) {
			continue
		}
		if topic := p.cfg.Topic(messages[i]); !p.own(err, were[topic] || taken[topic]) {
			errs[i] = fmt.Errorf("%w: %w", others, err)
		}
	}
	return errs
}

// mostTopics bounds the memory for topics.
const mostTopics = 10000

// note remembers of which topics the broker took a message, and returns of which of them
// it did before.
func (p *publisher) note(taken map[string]bool) map[string]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	were := make(map[string]bool, len(taken))
	for topic, took := range taken {
		were[topic] = p.healthy[topic]
		delete(p.healthy, topic)
		if len(p.healthy) >= mostTopics {
			clear(p.healthy)
		}
		if took {
			p.healthy[topic] = true
		}
	}
	return were
}

// own reports whether an error is its message's fault, of whose topic the broker has
// taken others or not.
func (p *publisher) own(err error, others bool) bool {
	switch {
	case errors.As(err, new(late)):
		return false
	case p.cfg.Rejected != nil:
		return p.cfg.Rejected(err)
	}
	return others
}
