package outbox

import (
	"context"
	"errors"
)

// A Publisher sends messages to a broker.
type Publisher interface {
	// Publish sends the messages, in any order and possibly at the same time.
	// It returns when the broker has acknowledged or rejected each of them, or
	// when ctx has ended. It returns nil if all were acknowledged. Otherwise,
	// it returns an error at the index of every message that was not, or may
	// not have been, acknowledged. If it does not return although ctx has
	// ended, its relay publishes nothing more, and another relay may publish
	// the same messages.
	//
	// An error that is ErrUnavailable does not count as an attempt of its
	// message. Messages are sent with their Headers unchanged and must not be
	// modified.
	Publish(ctx context.Context, messages []Message) []error
}

// ErrUnavailable, wrapped in an error of a Publisher, means that the broker
// could not be reached and that the message is not at fault. The relay retries
// for as long as it takes and parks no message because of it.
var ErrUnavailable = errors.New("the broker can't be reached")

// A PublisherFunc is an adapter that makes a function a Publisher.
type PublisherFunc func(ctx context.Context, messages []Message) []error

// Publish calls f.
func (f PublisherFunc) Publish(ctx context.Context, messages []Message) []error {
	return f(ctx, messages)
}
