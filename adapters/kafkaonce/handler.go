package kafkaonce

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/internal/defaults"
	"github.com/onlyonce-go/onlyonce/outbox"
)

// A Config controls how a Consumer handles records. The zero Config is usable.
type Config struct {
	// ID returns the ID of a record: see inbox.Message. Default: the header outbox.HeaderID, or
	// else the record's place, as in "orders/3/1042@1764266400000", with the timestamp
	// in milliseconds, so that a topic that was deleted and created again has other IDs.
	ID func(*kgo.Record) string

	// Tenant returns the tenant of a record. Default: the header outbox.HeaderTenant, or none.
	Tenant func(*kgo.Record) string

	// Backoff is how long a partition waits before it tries a record again that was not
	// handled. It doubles each time, up to MaxBackoff. Defaults: 100ms and 30s.
	Backoff, MaxBackoff time.Duration

	// Failed is called for each record that is to be tried again. Default: it is logged with
	// slog.Default(). A panic of it is recovered and logged, and changes nothing.
	Failed func(ctx context.Context, r *kgo.Record, err error)
}

// A Consumer handles records through an inbox. It is safe for concurrent use.
type Consumer struct {
	cfg    Config
	handle func(context.Context, *kgo.Record) error
}

// New returns a Consumer that runs h once for each record, as inbox.Handle does. The Redelivery
// of the Inbox is the session timeout of the consumer group, which is 45 seconds by default: that
// is how long Kafka takes to give the partitions of a process that died to another. New panics
// without an Inbox or a handler, and on an invalid Config.
//
// h may change its record. A panic of h is logged, and the record is tried again: the panic counts
// as an attempt. h's context does not end when that of Run does.
func New(in *inbox.Inbox, h func(context.Context, *kgo.Record) error, cfg Config) *Consumer {
	if in == nil || h == nil {
		panic("kafkaonce: New: the Inbox or the handler is nil")
	}
	cfg = cfg.withDefaults()
	return &Consumer{cfg: cfg, handle: func(ctx context.Context, r *kgo.Record) error {
		_, err := inbox.Handle(ctx, in, cfg.message(r), func(ctx context.Context) (struct{}, error) {
			return struct{}{}, h(ctx, clone(r))
		})
		return err
	}}
}

// NewTx is New for a handler whose rows are in the inbox's own database: its rows and the record
// that the message was handled are committed together. See inbox.HandleTx.
func NewTx[TX any](in *inbox.TxInbox[TX], h func(context.Context, TX, *kgo.Record) error, cfg Config) *Consumer {
	if in == nil || h == nil {
		panic("kafkaonce: NewTx: the TxInbox or the handler is nil")
	}
	cfg = cfg.withDefaults()
	return &Consumer{cfg: cfg, handle: func(ctx context.Context, r *kgo.Record) error {
		_, err := inbox.HandleTx(ctx, in, cfg.message(r), func(ctx context.Context, tx TX) (struct{}, error) {
			return struct{}{}, h(ctx, tx, clone(r))
		})
		return err
	}}
}

type recordKey struct{}

// Record returns the record that is being handled in ctx: the context of a handler, of the inbox's
// Config.Poison or of its Config.Traceparent. It must not be changed. It is nil in any other context.
func Record(ctx context.Context) *kgo.Record {
	r, _ := ctx.Value(recordKey{}).(*kgo.Record)
	return r
}

func (cfg Config) withDefaults() Config {
	cfg.Backoff, cfg.MaxBackoff = defaults.Backoff("kafkaonce", cfg.Backoff, cfg.MaxBackoff)
	if cfg.Failed == nil {
		cfg.Failed = func(ctx context.Context, r *kgo.Record, err error) {
			slog.WarnContext(ctx, "kafkaonce: a record was not handled, and is tried again", "topic", r.Topic, "partition", r.Partition, "offset", r.Offset, "error", err)
		}
	}
	return cfg
}

// message returns a record's message for the inbox.
func (cfg Config) message(r *kgo.Record) inbox.Message {
	headers := make(map[string]string, len(r.Headers))
	for _, h := range r.Headers {
		headers[h.Key] = string(h.Value)
	}
	m := inbox.Message{ID: headers[outbox.HeaderID], Tenant: headers[outbox.HeaderTenant], Payload: r.Value, Headers: headers}
	switch {
	case cfg.ID != nil:
		m.ID = cfg.ID(r)
	case m.ID == "":
		m.ID = fmt.Sprintf("%s/%d/%d@%d", r.Topic, r.Partition, r.Offset, r.Timestamp.UnixMilli())
	}
	if cfg.Tenant != nil {
		m.Tenant = cfg.Tenant(r)
	}
	return m
}

// clone copies a record for a handler, which may decode it in place.
func clone(r *kgo.Record) *kgo.Record {
	c := *r
	c.Key, c.Value, c.Headers = slices.Clone(r.Key), slices.Clone(r.Value), slices.Clone(r.Headers)
	for i, h := range c.Headers {
		c.Headers[i].Value = slices.Clone(h.Value)
	}
	return &c
}
