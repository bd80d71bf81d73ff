package watermillonce

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/onlyonce-go/onlyonce/outbox"
)

// A Config says how a publisher is used. The zero Config is usable.
type Config struct {
	// Topic says where a message goes; default: to its Topic.
	Topic func(outbox.Message) string

	// Refused tells an error that is the message's own fault, such as that it
	// is too large, from trouble with the broker. Default: an error is the
	// message's own if the broker took another one since the last time it took
	// none at all.
	Refused func(error) bool

	InFlight int // how many messages are published at a time; default 64
}

// NewPublisher makes Watermill's publisher an outbox's. The publisher must return
// only when the broker has the message for good: with watermill-amqp set
// PublishConfig.ConfirmDelivery, with watermill-nats use JetStream without
// PublishOptions for asynchronous publishing. It panics on a nil publisher.
//
// Messages are published one by one, many at a time: what Watermill returns for
// several does not say which of them the broker has.
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
	return &publisher{to: to, cfg: cfg}
}

type publisher struct {
	to      message.Publisher
	cfg     Config
	healthy atomic.Bool // the broker took a message since it last took none at all
}

// Publish hands each message to the publisher.
func (p *publisher) Publish(ctx context.Context, messages []outbox.Message) []error {
	errs := make([]error, len(messages))
	turns := make(chan struct{}, p.cfg.InFlight)
	var all sync.WaitGroup
	for i, m := range messages {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			errs[i] = p.publish(ctx, m)
		})
	}
	all.Wait()
	return p.blame(errs)
}

// publish returns when ctx ends, even if the publisher does not heed it.
func (p *publisher) publish(ctx context.Context, m outbox.Message) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	out := message.NewMessageWithContext(ctx, m.ID, m.Payload)
	out.Metadata = maps.Clone(m.Headers)
	done := make(chan error, 1)
	go func() { done <- p.to.Publish(p.cfg.Topic(m), out) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
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
	if p.cfg.Refused != nil {
		return p.cfg.Refused(err)
	}
	return others
}
