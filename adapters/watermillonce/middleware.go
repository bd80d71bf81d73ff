package watermillonce

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/outbox"
)

// A produced message is kept so that a repeat can produce it again. A UUID or metadata
// that are not UTF-8, such as a binary header of Kafka's, are kept in base64.
type produced struct {
	UUID     text      `json:"uuid"`
	Metadata [][2]text `json:"metadata,omitempty"` // names and values
	Payload  []byte    `json:"payload,omitempty"`
}

// Middleware makes a handler run once for every message, as inbox.Handle does.
// A repeated delivery produces the same messages again, with the same UUIDs,
// because the first ones may not have been published. A produced message that has
// the metadata of the handled one, and a UUID of its own, has that UUID as its outbox.HeaderID.
// A message that went to the inbox's Poison is acknowledged and produces nothing. A handler that returns a nil
// message has failed.
//
// If another consumer still works on the message, or the store can't be reached,
// the delivery is rejected after at most one second, so that the message is
// delivered again. The context
// of the handler's message outlives the subscriber's context and ends when the
// lease is lost.
func Middleware(in *inbox.Inbox) message.HandlerMiddleware {
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			r, err := inbox.Handle(msg.Context(), in, incoming(msg), func(ctx context.Context) ([]produced, error) {
				list, err := h(with(ctx, msg))
				return keep(msg, list, err)
			})
			return answer(msg, r, err)
		}
	}
}

// HandlerTx returns a handler for inbox.HandleTx, whose rows are in the inbox's
// own database: its rows, the messages that it produces and the record that it
// ran are committed together.
func HandlerTx[TX any](in *inbox.TxInbox[TX], h func(ctx context.Context, tx TX, msg *message.Message) ([]*message.Message, error)) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		r, err := inbox.HandleTx(msg.Context(), in, incoming(msg), func(ctx context.Context, tx TX) ([]produced, error) {
			list, err := h(ctx, tx, with(ctx, msg))
			return keep(msg, list, err)
		})
		return answer(msg, r, err)
	}
}

// incoming converts a message for the inbox. A message that was not published by an outbox
// is identified by its UUID.
func incoming(msg *message.Message) inbox.Message {
	id := msg.Metadata.Get(outbox.HeaderID)
	if id == "" {
		id = msg.UUID
	}
	return inbox.Message{ID: id, Tenant: msg.Metadata.Get(outbox.HeaderTenant), Payload: msg.Payload, Headers: msg.Metadata}
}

// with is the message with another context, and a payload of its own: the handler may
// decode it in place.
func with(ctx context.Context, msg *message.Message) *message.Message {
	inner := msg.Copy()
	inner.Payload = slices.Clone(msg.Payload)
	inner.SetContext(ctx)
	return inner
}

var errNilMessage = errors.New("watermillonce: the handler returned a nil message")

// keep returns what is kept of the messages that a handler of msg has produced. One with another UUID
// that has the metadata of msg is not msg: its UUID becomes its ID. Otherwise, the inbox of its consumer would
// take the second of two for a repeat of the first.
func keep(msg *message.Message, messages []*message.Message, err error) ([]produced, error) {
	if err != nil {
		return nil, err
	}
	list := make([]produced, 0, len(messages))
	for _, m := range messages {
		if m == nil {
			return nil, errNilMessage
		}
		p := produced{UUID: text(m.UUID), Payload: m.Payload}
		for name, value := range m.Metadata {
			if name == outbox.HeaderID && value == msg.Metadata.Get(name) && m.UUID != msg.UUID {
				value = m.UUID
			}
			p.Metadata = append(p.Metadata, [2]text{text(name), text(value)})
		}
		list = append(list, p)
	}
	return list, nil
}

// longestHold is how long a message is held that is rejected: a subscriber
// delivers it again at once.
const longestHold = time.Second

func answer(msg *message.Message, r inbox.Result[[]produced], err error) ([]*message.Message, error) {
	var busy *onlyonce.InFlightError
	switch {
	case errors.As(err, &busy):
		hold(msg, min(busy.RetryAfter, longestHold))
	case errors.Is(err, onlyonce.ErrUnavailable):
		hold(msg, longestHold)
	}
	if err != nil || r.Poisoned != nil {
		return nil, err
	}
	var messages []*message.Message
	for _, p := range r.Value {
		m := message.NewMessage(string(p.UUID), p.Payload)
		for _, pair := range p.Metadata {
			m.Metadata.Set(string(pair[0]), string(pair[1]))
		}
		messages = append(messages, m)
	}
	return messages, nil
}

// hold waits, unless the subscriber ends first.
func hold(msg *message.Message, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-msg.Context().Done():
	}
}
