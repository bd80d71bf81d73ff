package jetstreamonce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/internal/defaults"
	"github.com/onlyonce-go/onlyonce/outbox"
)

// A Config controls how a Consumer handles messages. The zero Config is usable.
type Config struct {
	// ID returns the ID of a message: see inbox.Message. Default: the header outbox.HeaderID, or
	// else Nats-Msg-Id, or else the message's place, as in "ORDERS/1042@1764266400000000000",
	// with the time at which the stream got it in nanoseconds.
	ID func(jetstream.Msg) string

	// Tenant returns the tenant of a message. Default: the header outbox.HeaderTenant, or none.
	Tenant func(jetstream.Msg) string

	// Handlers is how many messages are handled at a time. Default: 1.
	Handlers int

	// Backoff is after which time a message is delivered again that was not handled. It doubles
	// with each delivery, up to MaxBackoff. Defaults: 100ms and 30s.
	Backoff, MaxBackoff time.Duration

	// Failed is called for each message that is to be delivered again. Default: it is logged
	// with slog.Default(). A panic of it is recovered and logged, and changes nothing.
	Failed func(ctx context.Context, m jetstream.Msg, err error)
}

// A Consumer handles messages through an inbox. It is safe for concurrent use.
type Consumer struct {
	cfg        Config
	redelivery time.Duration
	handle     func(context.Context, jetstream.Msg) (poisoned bool, err error)
}

// New returns a Consumer that runs h once for each message, as inbox.Handle does. The Redelivery
// of the Inbox is the AckWait of the JetStream consumer. New panics without an Inbox or a
// handler, and on an invalid Config.
//
// The Consumer acknowledges the messages: the methods Ack, DoubleAck, Nak, NakWithDelay, Term and
// TermWithReason of h's message do nothing and return ErrOwnAck. A panic of h is logged, and the message is
// delivered again: the panic counts as an attempt. h's context does not end when that of Run does.
func New(in *inbox.Inbox, h func(context.Context, jetstream.Msg) error, cfg Config) *Consumer {
	if in == nil || h == nil {
		panic("jetstreamonce: New: the Inbox or the handler is nil")
	}
	cfg = cfg.withDefaults()
	return &Consumer{cfg: cfg, redelivery: in.Redelivery(), handle: func(ctx context.Context, m jetstream.Msg) (bool, error) {
		r, err := inbox.Handle(ctx, in, cfg.message(m), func(ctx context.Context) (struct{}, error) {
			return struct{}{}, h(ctx, unacknowledged{m})
		})
		return r.Poisoned != nil, err
	}}
}

// NewTx is New for a handler whose rows are in the inbox's own database: its rows and the record
// that the message was handled are committed together. See inbox.HandleTx.
func NewTx[TX any](in *inbox.TxInbox[TX], h func(context.Context, TX, jetstream.Msg) error, cfg Config) *Consumer {
	if in == nil || h == nil {
		panic("jetstreamonce: NewTx: the TxInbox or the handler is nil")
	}
	cfg = cfg.withDefaults()
	return &Consumer{cfg: cfg, redelivery: in.Redelivery(), handle: func(ctx context.Context, m jetstream.Msg) (bool, error) {
		r, err := inbox.HandleTx(ctx, in, cfg.message(m), func(ctx context.Context, tx TX) (struct{}, error) {
			return struct{}{}, h(ctx, tx, unacknowledged{m})
		})
		return r.Poisoned != nil, err
	}}
}

type messageKey struct{}

// Message returns the message that is being handled in ctx: the context of a handler, of the
// inbox's Config.Poison or of its Config.Traceparent. It is nil in any other context.
func Message(ctx context.Context) jetstream.Msg {
	if m, ok := ctx.Value(messageKey{}).(jetstream.Msg); ok {
		return unacknowledged{m}
	}
	return nil
}

func (cfg Config) withDefaults() Config {
	cfg.Handlers = defaults.Positive("jetstreamonce: Config.Handlers", cfg.Handlers, 1)
	cfg.Backoff, cfg.MaxBackoff = defaults.Backoff("jetstreamonce", cfg.Backoff, cfg.MaxBackoff)
	if cfg.Failed == nil {
		cfg.Failed = func(ctx context.Context, m jetstream.Msg, err error) {
			slog.WarnContext(ctx, "jetstreamonce: a message was not handled, and is delivered again", "subject", m.Subject(), "error", err)
		}
	}
	return cfg
}

// message returns a message for the inbox. Its payload is a copy, because a handler may decode
// the message in place.
func (cfg Config) message(m jetstream.Msg) inbox.Message {
	headers := make(map[string]string, len(m.Headers()))
	for name, values := range m.Headers() {
		if len(values) > 0 {
			headers[name] = values[0]
		}
	}
	in := inbox.Message{ID: headers[outbox.HeaderID], Tenant: headers[outbox.HeaderTenant], Payload: slices.Clone(m.Data()), Headers: headers}
	switch meta, err := m.Metadata(); {
	case cfg.ID != nil:
		in.ID = cfg.ID(m)
	case in.ID != "":
	case headers[jetstream.MsgIDHeader] != "":
		in.ID = headers[jetstream.MsgIDHeader]
	case err == nil:
		in.ID = fmt.Sprintf("%s/%d@%d", meta.Stream, meta.Sequence.Stream, meta.Timestamp.UnixNano())
	}
	if cfg.Tenant != nil {
		in.Tenant = cfg.Tenant(m)
	}
	return in
}

// ErrOwnAck is the error of a handler's own acknowledgment.
var ErrOwnAck = errors.New("jetstreamonce: the Consumer acknowledges the message when it was handled: return nil, or an error, instead")

// An unacknowledged message can't be acknowledged. An acknowledgment before the inbox has recorded
// that the message was handled would lose it if the process dies.
type unacknowledged struct{ jetstream.Msg }

func (unacknowledged) Ack() error                       { return ErrOwnAck }
func (unacknowledged) DoubleAck(context.Context) error  { return ErrOwnAck }
func (unacknowledged) Nak() error                       { return ErrOwnAck }
func (unacknowledged) NakWithDelay(time.Duration) error { return ErrOwnAck }
func (unacknowledged) Term() error                      { return ErrOwnAck }
func (unacknowledged) TermWithReason(string) error      { return ErrOwnAck }
