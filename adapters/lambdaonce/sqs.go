package lambdaonce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/outbox"
)

// An SQSConfig controls how the messages of a queue are handled. The zero SQSConfig is usable.
type SQSConfig struct {
	// ReportBatchItemFailures says that the event source mapping has ReportBatchItemFailures
	// among its FunctionResponseTypes, so that only the messages that have failed are delivered
	// again. Without that, Lambda would ignore which messages have failed, and delete them. So
	// by default, the function returns an error if any message has failed, and all of them are
	// delivered again, of which those that were handled are not handled again.
	ReportBatchItemFailures bool

	// ID returns the ID of a message: see inbox.Message. Default: the message attribute
	// outbox.HeaderID, or else the MessageId, which is a new one when a sender sends again, and
	// when a message is moved back from a dead-letter queue (redrive): then one that was handled
	// before is handled again.
	ID func(events.SQSMessage) string

	// Tenant returns the tenant of a message. Default: the message attribute
	// outbox.HeaderTenant, or none.
	Tenant func(events.SQSMessage) string

	// Failed is called for each message that is to be delivered again. Default: it is logged
	// with slog.Default().
	Failed func(ctx context.Context, m events.SQSMessage, err error)
}

// An SQSFunc is a function for lambda.Start.
type SQSFunc func(context.Context, events.SQSEvent) (events.SQSEventResponse, error)

// SQSHandler returns a function for lambda.Start that runs h once for each message, as
// inbox.Handle does. The Redelivery of the Inbox is the queue's visibility timeout.
//
// The messages of a batch are handled one after another. Those that have failed, that another
// consumer is working on, or for which no time is left, are to be delivered again. In a FIFO
// queue, the messages of the same group that follow them are not handled either, so that the
// order is preserved.
//
// h's context ends as that of a request of HTTPHandler does. A panic continues: it counts as an
// attempt, and the whole batch is delivered again.
func SQSHandler(in *inbox.Inbox, h func(context.Context, events.SQSMessage) error, cfg SQSConfig) SQSFunc {
	if in == nil || h == nil {
		panic("lambdaonce: SQSHandler: the Inbox or the handler is nil")
	}
	return cfg.handler(func(ctx context.Context, at time.Time, m events.SQSMessage) error {
		_, err := inbox.Handle(ctx, in, cfg.message(m), func(ctx context.Context) (struct{}, error) {
			ctx, stop := until(ctx, at)
			defer stop()
			return struct{}{}, late(ctx, h(ctx, m))
		})
		return err
	})
}

// SQSHandlerTx is SQSHandler for a handler whose rows are in the inbox's own database: its rows
// and the record that the message was handled are committed together. See inbox.HandleTx.
func SQSHandlerTx[TX any](in *inbox.TxInbox[TX], h func(context.Context, TX, events.SQSMessage) error, cfg SQSConfig) SQSFunc {
	if in == nil || h == nil {
		panic("lambdaonce: SQSHandlerTx: the TxInbox or the handler is nil")
	}
	return cfg.handler(func(ctx context.Context, at time.Time, m events.SQSMessage) error {
		_, err := inbox.HandleTx(ctx, in, cfg.message(m), func(ctx context.Context, tx TX) (struct{}, error) {
			ctx, stop := until(ctx, at)
			defer stop()
			return struct{}{}, h(ctx, tx, m)
		})
		return err
	})
}

var (
	errNoTime = errors.New("lambdaonce: not handled: the time of the invocation was over")
	errOrder  = errors.New("lambdaonce: not handled: an earlier message of its group has failed")
)

// handler returns the function that handles the messages of a batch.
func (cfg SQSConfig) handler(handle func(ctx context.Context, at time.Time, m events.SQSMessage) error) SQSFunc {
	if cfg.Failed == nil {
		cfg.Failed = func(ctx context.Context, m events.SQSMessage, err error) {
			slog.WarnContext(ctx, "an SQS message is to be delivered again", "message_id", m.MessageId, "queue", m.EventSourceARN, "error", err)
		}
	}
	return func(ctx context.Context, batch events.SQSEvent) (response events.SQSEventResponse, err error) {
		at := endOf(ctx)
		bounded, stop := until(ctx, at)
		defer stop()
		blocked := map[string]bool{} // groups of a FIFO queue
		for _, m := range batch.Records {
			group := m.Attributes["MessageGroupId"]
			var failed error
			switch {
			case blocked[group]:
				failed = errOrder
			case isOver(at):
				failed = errNoTime
			default:
				failed = handle(bounded, at, m)
			}
			if failed == nil {
				continue
			}
			if strings.HasSuffix(m.EventSourceARN, ".fifo") {
				blocked[group] = true
			}
			response.BatchItemFailures = append(response.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: m.MessageId})
			cfg.Failed(ctx, m, failed)
		}
		if n := len(response.BatchItemFailures); n > 0 && !cfg.ReportBatchItemFailures {
			return events.SQSEventResponse{}, fmt.Errorf("lambdaonce: %d of %d messages are to be delivered again", n, len(batch.Records))
		}
		return response, nil
	}
}

// message returns a message for the inbox.
func (cfg SQSConfig) message(m events.SQSMessage) inbox.Message {
	headers := make(map[string]string, len(m.MessageAttributes))
	for name, a := range m.MessageAttributes {
		if a.StringValue != nil {
			headers[name] = *a.StringValue
		}
	}
	in := inbox.Message{ID: headers[outbox.HeaderID], Tenant: headers[outbox.HeaderTenant], Payload: []byte(m.Body), Headers: headers}
	switch {
	case cfg.ID != nil:
		in.ID = cfg.ID(m)
	case in.ID == "":
		in.ID = m.MessageId
	}
	if cfg.Tenant != nil {
		in.Tenant = cfg.Tenant(m)
	}
	return in
}
