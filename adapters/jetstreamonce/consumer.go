package jetstreamonce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/recovered"
)

// Run consumes until ctx ends, and then returns nil, once the handlers that are running have
// returned. Any number of processes may consume from the same durable consumer. A message is
// fetched when there is a handler for it, and so none waits in memory.
//
// Run returns an error if the consumer can't be used, if it or its stream is deleted, or if the connection is
// closed. Any other error of the server is logged with slog.Default(), and Run tries again. These settings
// of a consumer can't be used: an AckPolicy other than AckExplicitPolicy, an AckWait other than the inbox's
// Redelivery, a MaxDeliver and a BackOff. The inbox's MaxAttempts and Poison are instead of MaxDeliver, after
// which the server would silently drop a message. Run reads the settings when it begins, and then every five
// seconds, or every Redelivery if that is shorter: until it has found a MaxDeliver that the consumer got
// meanwhile, the server may drop messages.
func (c *Consumer) Run(ctx context.Context, from jetstream.Consumer) error {
	info, err := from.Info(ctx)
	if err == nil {
		err = c.check(info.Config)
	}
	if err != nil {
		return fmt.Errorf("jetstreamonce: Run: %w", err)
	}
	var running sync.WaitGroup
	defer running.Wait()
	caller := ctx
	ctx, end := context.WithCancelCause(caller)
	defer end(nil)
	running.Go(func() { c.watch(ctx, from, end) })
	turns := make(chan struct{}, c.cfg.Handlers)
	var singly time.Duration // for how long messages are fetched one at a time: the sum of the times in fetch
	for ctx.Err() == nil {
		most := c.cfg.Handlers
		if singly > 0 {
			most = 1
		}
		free, began := take(turns, most), time.Now()
		err := c.fetch(ctx, from, free, func(m jetstream.Msg) {
			free--
			running.Go(func() {
				defer func() { <-turns }()
				c.deliver(ctx, m)
			})
		})
		for range free {
			<-turns
		}
		waited := time.Since(began)
		singly -= waited
		if err != nil || free > 0 && waited < jetstream.DefaultExpires {
			// The client ends a fetch at a message that it takes for one of the server, and drops those that
			// follow. After the AckWait, the server delivers all of them again, in the same order.
			singly = 2 * c.redelivery
		}
		if err != nil && ctx.Err() == nil {
			time.Sleep(afterError)
			if end := ended(ctx, from, info.Created, err); end != nil {
				return fmt.Errorf("jetstreamonce: Run: %w", end)
			}
			if ctx.Err() == nil {
				slog.WarnContext(ctx, "jetstreamonce: messages could not be fetched", "error", err)
			}
		}
	}
	if caller.Err() == nil {
		return fmt.Errorf("jetstreamonce: Run: %w", context.Cause(ctx))
	}
	return nil
}

// watch calls end once the consumer has got settings that can't be used, of which the server says nothing.
func (c *Consumer) watch(ctx context.Context, from jetstream.Consumer, end context.CancelCauseFunc) {
	t := time.NewTicker(min(c.redelivery, longestCheck))
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		info, err := from.Info(ctx)
		if err != nil {
			continue // fetch finds out whether the consumer is gone
		}
		if err := c.check(info.Config); err != nil {
			end(err)
			return
		}
	}
}

// longestCheck is the longest time between two checks of the consumer's settings.
const longestCheck = 5 * time.Second

// take waits for a turn, and takes all that are free then, up to most.
func take(turns chan<- struct{}, most int) (n int) {
	turns <- struct{}{}
	for n = 1; n < most; n++ {
		select {
		case turns <- struct{}{}:
		default:
			return n
		}
	}
	return n
}

// fetch calls f for up to n messages. It returns sooner if there are none for a while.
func (c *Consumer) fetch(ctx context.Context, from jetstream.Consumer, n int, f func(jetstream.Msg)) error {
	batch, err := from.Fetch(n, jetstream.FetchContext(ctx))
	if err != nil {
		return err
	}
	for m := range batch.Messages() {
		f(m)
	}
	return batch.Error()
}

// afterError is how long Run waits after an error of the server.
const afterError = 250 * time.Millisecond

// ended returns an error if the consumer can't be used any more, after an error of fetch. That error
// does not suffice: a server that is away is not told from a consumer that is, and a message without data
// that has a header "Status" looks like any error of the server.
func ended(ctx context.Context, from jetstream.Consumer, created time.Time, err error) error {
	now, gone := from.Info(ctx)
	switch {
	case ctx.Err() != nil:
		return nil
	case isGone(gone):
		if isGone(err) {
			return err
		}
		return gone
	case isGone(err) && gone == nil && !now.Created.Equal(created): // it was deleted and created again
		return err
	}
	return nil
}

// isGone reports whether the error says that the consumer can't be used any more.
func isGone(err error) bool {
	for _, gone := range []error{jetstream.ErrConsumerDeleted, jetstream.ErrConsumerNotFound, jetstream.ErrStreamNotFound, nats.ErrConnectionClosed} {
		if errors.Is(err, gone) {
			return true
		}
	}
	return false
}

// check returns an error for the settings of a consumer that would lose messages or handle them late.
func (c *Consumer) check(s jetstream.ConsumerConfig) error {
	switch {
	case s.AckPolicy != jetstream.AckExplicitPolicy:
		return fmt.Errorf("the consumer's AckPolicy is %s: set AckExplicitPolicy, so that each message is acknowledged on its own", s.AckPolicy)
	case len(s.BackOff) > 0:
		return fmt.Errorf("the consumer's BackOff is %v, which replaces its AckWait: leave it empty, and set Config.Backoff", s.BackOff)
	case s.AckWait != c.redelivery:
		return fmt.Errorf("the consumer's AckWait is %v, but the inbox's Redelivery is %v: set both to the same time", s.AckWait, c.redelivery)
	case s.MaxDeliver > 0:
		return fmt.Errorf("the consumer's MaxDeliver is %d: leave it 0, because the server drops a message that it has delivered that often, and set the inbox's MaxAttempts and Poison", s.MaxDeliver)
	}
	return nil
}

// deliver handles a message, and tells the server. An error of that is ignored: the server
// delivers the message again after the AckWait.
func (c *Consumer) deliver(ctx context.Context, m jetstream.Msg) {
	if ctx.Err() != nil {
		_ = m.Nak()
		return
	}
	poisoned := false
	stop := c.keepAlive(m)
	err := call(ctx, m, "the handler", func() (err error) {
		poisoned, err = c.handle(context.WithValue(ctx, messageKey{}, m), m)
		return err
	})
	stop()
	switch {
	case err != nil:
		_ = call(ctx, m, "Config.Failed", func() error {
			c.cfg.Failed(ctx, m, err)
			return nil
		})
		_ = m.NakWithDelay(c.delay(m, err))
	case poisoned:
		_ = m.Term()
	default:
		_ = m.Ack()
	}
}

// call calls a function of the program's for a message in a goroutine of its own, so that neither a panic
// nor runtime.Goexit ends more than the function.
func call(ctx context.Context, m jetstream.Msg, who string, fn func() error) error {
	err := recovered.Call(who, fn)
	recovered.Log(ctx, err, "jetstreamonce", "subject", m.Subject())
	return err
}

// keepAlive tells the server that the message is being handled, until stop is called.
func (c *Consumer) keepAlive(m jetstream.Msg) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(c.redelivery / 3)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				_ = m.InProgress()
			case <-done:
				return
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// delay returns after which time the server is to deliver a message again.
func (c *Consumer) delay(m jetstream.Msg, err error) time.Duration {
	var busy *onlyonce.InFlightError
	if errors.As(err, &busy) {
		return min(max(busy.RetryAfter, c.cfg.Backoff), c.cfg.MaxBackoff)
	}
	after := c.cfg.Backoff
	if meta, err := m.Metadata(); err == nil {
		for n := uint64(1); n < meta.NumDelivered && after < c.cfg.MaxBackoff; n++ {
			after *= 2
		}
	}
	return min(after, c.cfg.MaxBackoff)
}
