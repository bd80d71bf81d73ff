package watermillonce

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

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
	// message since the last time it accepted none at all.
	Rejected func(error) bool

	InFlight int // how many messages are published at a time, including those whose call has not returned although its context ended; default 64
}

// NewPublisher adapts a Watermill publisher to an outbox.Publisher. The
// Watermill publisher must return only when the broker has stored the message
// durably: with watermill-amqp, set PublishConfig.ConfirmDelivery; with
// watermill-nats, use JetStream without PublishOptions for asynchronous
// publishing. NewPublisher panics on a nil publisher.
//
// Each message is published with its own call, and many calls run at a time,
// because Watermill's result for several messages does not say which of them
// the broker has. A panic of the Watermill publisher is recovered, logged with its stack
// by slog's default logger, and treated as an error.
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
	return &publisher{to: to, cfg: cfg, turns: make(chan struct{}, cfg.InFlight)}
}

type publisher struct {
	to      message.Publisher
	cfg     Config
	turns   chan struct{} // has as many elements as calls of to are under way, also of those that nobody waits for any more
	healthy atomic.Bool   // the broker took a message since it last took none at all
}

// Publish hands each message to the publisher.
func (p *publisher) Publish(ctx context.Context, messages []outbox.Message) []error {
	errs := make([]error, len(messages))
	var all sync.WaitGroup
	for i, m := range messages {
		select {
		case p.turns <- struct{}{}:
			all.Go(func() { errs[i] = p.publish(ctx, m) })
		case <-ctx.Done():
			errs[i] = context.Cause(ctx)
		}
	}
	all.Wait()
	return p.blame(errs)
}

// publish returns when ctx ends, even if the publisher does not heed it. The call that
// is left behind keeps its turn until it returns: a broker that hangs for an hour would
// otherwise gather calls that all publish the same messages when it goes on.
func (p *publisher) publish(ctx context.Context, m outbox.Message) error {
	if ctx.Err() != nil {
		<-p.turns
		return context.Cause(ctx)
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
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// publishOrRecover returns a panic of the Watermill publisher as an error: nobody else
// could recover it, in a goroutine of its own.
func (p *publisher) publishOrRecover(ctx context.Context, m outbox.Message, out *message.Message) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			slog.ErrorContext(ctx, "watermillonce: the publisher panicked", "message_id", m.ID, "topic", m.Topic, "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
			err = fmt.Errorf("the Watermill publisher panicked: %v", cause)
		}
	}()
	return p.to.Publish(p.cfg.Topic(m), out)
}

// blame says which errors are the broker's.
func (p *publisher) blame(errs []error) []error {
	taken, failed := 0, 0
	for _, err := range errs {
		if err == nil {
			taken++
		} else {
			failed++
		}
	}
	if failed == 0 {
		p.healthy.Store(true)
		return nil
	}
	was := p.healthy.Swap(taken > 0)
	for i, err := range errs {
		if err != nil && !p.own(err, was || taken > 0) {
			errs[i] = fmt.Errorf("%w: %w", outbox.ErrUnavailable, err)
		}
	}
	return errs
}

// own reports whether an error is its message's fault.
func (p *publisher) own(err error, others bool) bool {
	if p.cfg.Rejected != nil {
		return p.cfg.Rejected(err)
	}
	return others
}
