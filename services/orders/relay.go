package orders

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/services/internal/broker"
)

// Relay only publishes the events of a queue through cfg.Broker, until ctx ends. It is
// the part of Run that can run in a separate process.
func Relay(ctx context.Context, events outbox.Queue, cfg Config) error {
	cfg = cfg.withDefaults()
	if err := broker.CheckURL(cfg.Broker); err != nil {
		return fmt.Errorf("orders: relay: Config.Broker: %w", err)
	}
	b := cfg.connect(ctx)
	if b == nil {
		return nil
	}
	cfg.newRelay(events, b).Run(ctx)
	return b.Close()
}

// relayLease is how long the events of a relay that died wait for another relay.
const relayLease = 5 * time.Second

func (c Config) newRelay(events outbox.Queue, to outbox.Publisher) *outbox.Relay {
	log := logEvents(c.Log)
	return outbox.NewRelay(events, to, outbox.Config{
		Lease: min(relayLease, c.Lease), MaxAttempts: c.MaxAttempts,
		Observer: func(ctx context.Context, e outbox.Event) {
			log(ctx, e)
			if c.OutboxObserver != nil {
				c.OutboxObserver(ctx, e)
			}
		},
	})
}

// troubleEvery is how often it is logged that the queue can't be used. The relay tries
// several times as often.
const troubleEvery = time.Minute

// logEvents returns an outbox.Observer of one relay that logs events. A queue that is away
// does not fill the log. That published messages could not be marked is always logged.
func logEvents(log *slog.Logger) outbox.Observer {
	all := outbox.SlogObserver(log)
	var logged time.Time
	return func(ctx context.Context, e outbox.Event) {
		if e.Outcome == outbox.OutcomeTrouble && e.Count == 0 {
			if !logged.IsZero() && time.Since(logged) < troubleEvery {
				return
			}
			logged = time.Now()
		}
		all(ctx, e)
	}
}

// BrokerForms lists the forms of Config.Broker.
const BrokerForms = broker.Forms

// CheckBroker returns an error unless Config.Broker may be address. The error does not
// repeat it, because it may contain a password.
func CheckBroker(address string) error {
	if address == "" {
		return nil
	}
	return broker.CheckURL(address)
}

// connectPause is the longest pause between two attempts to connect to the broker.
const connectPause = 5 * time.Second

// retry calls try until it succeeds or ctx ends, with increasing pauses.
func (c Config) retry(ctx context.Context, what string, try func() error) {
	for pause := 100 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, connectPause) {
		err := try()
		if err == nil || ctx.Err() != nil {
			return
		}
		c.Log.WarnContext(ctx, "orders: "+what+" failed: retrying", "error", err, "after", pause)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// connect returns the broker once it is reachable, or nil when ctx has ended.
func (c Config) connect(ctx context.Context) (b broker.Broker) {
	c.retry(ctx, "connecting to the broker", func() (err error) {
		b, err = broker.Open(ctx, c.Broker, broker.Config{Name: c.BrokerName, AckWait: redelivery, Handlers: receivers, Consumers: []string{consumer}})
		return err
	})
	return b
}

// runHere delivers events in this process, directly from the queue.
func (a *API) runHere(ctx context.Context) {
	a.cfg.newRelay(a.outbox, outbox.PublisherFunc(a.deliver)).Run(ctx)
}

// runBroker delivers events through the broker.
func (a *API) runBroker(ctx context.Context) {
	b := a.cfg.connect(ctx)
	if b == nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { a.cfg.newRelay(a.outbox, b).Run(ctx) })
	both.Go(func() {
		a.cfg.retry(ctx, "consuming events", func() error { return b.Consume(ctx, consumer, a.receive) })
	})
	both.Wait()
	if err := b.Close(); err != nil {
		a.cfg.Log.WarnContext(ctx, "orders: the connection to the broker could not be closed", "error", err)
	}
}
