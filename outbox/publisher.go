package outbox

import (
	"context"
	"errors"
)

// A Publisher hands messages to a broker.
type Publisher interface {
	// Publish sends the messages, in any order and at the same time if it likes,
	// and returns when the broker has acknowledged or refused each of them, or
	// ctx has ended. It returns nil if all were acknowledged; otherwise an error
	// at the index of every message that was not, or may not have been. If it does
	// not return although ctx has ended, its relay publishes nothing more, and
	// another one may publish the same messages.
	//
	// An error that is ErrUnavailable does not count against its message.
	// Messages are sent with their Headers as they are, and are not to be
	// modified.
	Publish(ctx context.Context, messages []Message) []error
}

// ErrUnavailable, in what an error of a Publisher wraps, means that the broker
// could not be reached: it is no fault of the message. The relay tries again,
// however long it takes, and parks nothing for it.
var ErrUnavailable = errors.New("the broker can't be reached")

// A PublisherFunc is a function that is a Publisher.
type PublisherFunc func(ctx context.Context, messages []Message) []error

// Publish calls f.
func (f PublisherFunc) Publish(ctx context.Context, messages []Message) []error {
	return f(ctx, messages)
}
