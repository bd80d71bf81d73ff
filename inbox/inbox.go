package inbox

import (
	"context"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/defaults"
)

// A Message is a message that a broker delivered.
type Message struct {
	ID      string // the sender's ID of the message, the same at every delivery, and that of no other message of the tenant, also of another topic
	Tenant  string // the tenant to which it belongs; messages of two tenants are never the same
	Payload []byte // must be the same in a repeat
	Headers map[string]string
}

func (m Message) check() error {
	if m.ID == "" || len(m.ID) > defaults.LongestIDPart || len(m.Tenant) > defaults.LongestIDPart {
		return fmt.Errorf("inbox: its ID has %d bytes and its tenant %d: a sender must set the ID, and neither may have more than %d", len(m.ID), len(m.Tenant), defaults.LongestIDPart)
	}
	return nil
}

// DefaultKeep is the default of Config.Keep.
const DefaultKeep = 7 * 24 * time.Hour

// A Config controls how an Inbox handles its messages.
type Config struct {
	// Consumer is the name of the consumer. Each of several consumers handles a
	// message once. It must not change while messages are in transit.
	Consumer string

	// Redelivery is how long the broker waits for an acknowledgment before it
	// redelivers a message: JetStream's AckWait or RabbitMQ's consumer_timeout.
	Redelivery time.Duration

	Lease time.Duration // how long a handler that died holds its message; less than Redelivery; default: half of it, at most 30s
	Keep  time.Duration // how long the record of a handled message is kept; longer than a broker may delay a message, or onlyonce.KeepForever; default DefaultKeep
	Wait  time.Duration // how long a message waits for another consumer's attempt; 0: it is rejected at once

	// MaxAttempts is how often the handler may fail on a message before the
	// message goes to Poison and is finished; default 10. An attempt of Handle
	// also counts if its process died. An attempt of HandleTx leaves no trace
	// in that case.
	MaxAttempts int

	// Poison stores a message that can't be handled, with the last error, for a
	// person to look at. If it fails, the message is not finished. Default:
	// none, and a message is retried as long as the broker delivers it.
	Poison func(ctx context.Context, m Message, cause error) error

	Observer onlyonce.Observer // nil: none

	// Traceparent returns the trace context of a delivery, for the message's record, as
	// onlyonce.Config.Traceparent does. Nil: none is kept.
	Traceparent func(context.Context) string
}

// An Inbox records which messages a consumer has handled. It is safe for
// concurrent use.
type Inbox struct {
	guard *onlyonce.Guard
	cfg   Config
}

// New returns the inbox of a consumer, kept in store. It panics on an invalid
// Config.
func New(store onlyonce.Store, cfg Config) *Inbox {
	cfg = cfg.withDefaults()
	return &Inbox{guard: onlyonce.New(store, cfg.guard()), cfg: cfg}
}

// A TxInbox is an Inbox whose consumer's rows are in the same database: see
// HandleTx.
type TxInbox[TX any] struct {
	*Inbox
	guard *onlyonce.TxGuard[TX]
}

// NewTx returns the inbox of a consumer, kept in store. It panics on an invalid
// Config.
func NewTx[TX any](store onlyonce.TxStore[TX], cfg Config) *TxInbox[TX] {
	cfg = cfg.withDefaults()
	guard := onlyonce.NewTx(store, cfg.guard())
	return &TxInbox[TX]{Inbox: &Inbox{guard: guard.Guard, cfg: cfg}, guard: guard}
}

func (cfg Config) guard() onlyonce.Config {
	return onlyonce.Config{Lease: cfg.Lease, Keep: cfg.Keep, Wait: cfg.Wait, Observer: cfg.Observer, Traceparent: cfg.Traceparent}
}

func (cfg Config) withDefaults() Config {
	if cfg.Consumer == "" {
		panic("inbox: Config.Consumer is empty: set it to the name of the consumer, such as \"shipping\"")
	}
	if cfg.Redelivery <= 0 {
		panic("inbox: Config.Redelivery is not set: set it to how long the broker waits for an acknowledgment, such as JetStream's AckWait")
	}
	if cfg.Lease == 0 {
		cfg.Lease = min(cfg.Redelivery/2, onlyonce.DefaultLease)
	}
	if cfg.Lease >= cfg.Redelivery {
		panic(fmt.Sprintf("inbox: Config.Lease is %v, but the broker redelivers after %v: write a shorter lease, or a message whose handler died is rejected when it is redelivered", cfg.Lease, cfg.Redelivery))
	}
	if cfg.Keep == 0 {
		cfg.Keep = DefaultKeep
	}
	if cfg.Keep != onlyonce.KeepForever && cfg.Keep <= cfg.Redelivery {
		panic(fmt.Sprintf("inbox: Config.Keep is %v, but the broker redelivers after %v: write a longer time, or a handled message is handled again", cfg.Keep, cfg.Redelivery))
	}
	if cfg.MaxAttempts < 0 || cfg.MaxAttempts > 0 && cfg.Poison == nil {
		panic(fmt.Sprintf("inbox: Config.MaxAttempts is %d: write a positive number, and set Poison, which gets a message that fails that often", cfg.MaxAttempts))
	}
	if cfg.MaxAttempts == 0 {
		cfg.MaxAttempts = 10
	}
	return cfg
}

// Redelivery returns Config.Redelivery.
func (in *Inbox) Redelivery() time.Duration { return in.cfg.Redelivery }

// request returns the request for the handling of m by this consumer.
func (in *Inbox) request(m Message) onlyonce.Request {
	return onlyonce.Request{
		ID:          onlyonce.ID{Tenant: m.Tenant, Operation: in.cfg.Consumer, Key: m.ID},
		Fingerprint: onlyonce.Fingerprint(m.Payload),
	}
}

// exhausted reports whether the attempt exceeds Config.MaxAttempts. Without a Poison,
// no attempt does.
func (in *Inbox) exhausted(attempt int) bool {
	return in.cfg.Poison != nil && attempt > in.cfg.MaxAttempts
}
