package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/onlyonce-go/onlyonce/internal/recovered"
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
	// An error that is ErrUnavailable or ErrNoRoute does not count as an attempt
	// of its message. After ctx's deadline has passed, neither does one that is a timeout
	// (context.DeadlineExceeded, or an error with a method Timeout that returns true): it is
	// treated as ErrUnavailable if no message was acknowledged, and otherwise as ErrNoRoute.
	// Messages are sent with their Headers unchanged and must not be modified.
	//
	// A panic is recovered. The messages are published again in smaller parts, and
	// a message that is alone when Publish panics has failed. The same applies if Publish
	// calls runtime.Goexit.
	Publish(ctx context.Context, messages []Message) []error
}

// ErrUnavailable, wrapped in an error of a Publisher, means that the broker
// could not be reached and that the message is not at fault. The relay retries
// for as long as it takes and parks no message because of it. If the broker accepts none of
// a batch, the relay leases messages of other topics, and treats the error as ErrNoRoute as
// long as the broker accepts these. A Publisher with several brokers returns ErrNoRoute for
// the messages of one that is away while others can be reached, so that they do not hold up
// the others' messages.
var ErrUnavailable = errors.New("the broker can't be reached")

// ErrNoRoute, wrapped in an error of a Publisher, means that the broker has no place for
// the message at present, such as a queue that is not full, but accepts others. The
// relay does not park the message because of it, and delays no other message except
// those with its key. It retries after a quarter of the message's age, but at least
// Config.Backoff and at most Config.MaxBackoff; later if there are so many such messages
// that it has published no others for longer than that.
var ErrNoRoute = errors.New("the broker has no route for the message")

// A PublisherFunc is an adapter that makes a function a Publisher.
type PublisherFunc func(ctx context.Context, messages []Message) []error

// Publish calls f.
func (f PublisherFunc) Publish(ctx context.Context, messages []Message) []error {
	return f(ctx, messages)
}

// publishApart calls the Publisher. If it panics, the messages are published in ever
// smaller parts, until only the messages that cause the panic fail: one message must not
// end the process after every restart, and so prevent all others from being published.
func publishApart(ctx context.Context, to Publisher, messages []Message) []error {
	errs, panicked := publishOrRecover(ctx, to, messages)
	switch {
	case panicked == nil:
		return errs
	case len(messages) == 1:
		return []error{panicked}
	}
	all := make([]error, 0, len(messages))
	for _, part := range [][]Message{messages[:len(messages)/2], messages[len(messages)/2:]} {
		if ctx.Err() != nil {
			errs = unavailable(len(part), context.Cause(ctx))
		} else {
			errs, _ = acknowledged(len(part), publishApart(ctx, to, part))
		}
		all = append(all, errs[:len(part)]...)
	}
	return all
}

func unavailable(messages int, cause error) []error {
	errs := make([]error, messages)
	for i := range errs {
		errs[i] = fmt.Errorf("%w: %w", ErrUnavailable, cause)
	}
	return errs
}

// publishOrRecover calls the Publisher, and returns a panic as an error. It logs the
// panic if there is only one message. The Publisher has a goroutine of its own, which it may end.
func publishOrRecover(ctx context.Context, to Publisher, messages []Message) (errs []error, panicked error) {
	panicked = recovered.Call("the Publisher", func() error {
		errs = to.Publish(ctx, messages)
		for _, err := range errs {
			if err != nil {
				callMethods(err)
			}
		}
		return nil
	})
	if len(messages) == 1 {
		recovered.Log(ctx, panicked, "outbox", "message_id", messages[0].ID, "topic", messages[0].Topic)
	}
	return errs, panicked
}

// callMethods calls the methods of an error that the relay calls later, where nothing recovers their panics. If the
// error is a nil pointer, any of them may panic.
func callMethods(err error) {
	_ = err.Error()
	_ = isTimeout(err)
	_ = errors.Is(err, ErrUnavailable) || errors.Is(err, ErrNoRoute)
}

// excuse marks errors that are timeouts as the broker's, after the time for a call has passed: a
// broker that does not respond must not cause messages to be parked.
func excuse(errs []error, acked int) []error {
	errs = slices.Clone(errs)
	whose := ErrUnavailable
	if acked > 0 {
		whose = ErrNoRoute
	}
	for i, err := range errs {
		if isTimeout(err) && !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrNoRoute) {
			errs[i] = fmt.Errorf("%w: %w", whose, err)
		}
	}
	return errs
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool } // as context.DeadlineExceeded has
	return errors.As(err, &timeout) && timeout.Timeout()
}

var errNoResponse = errors.New("the Publisher returned fewer errors than messages: it must return nil, or one for each")

// acknowledged returns an error, or nil, for each message, and the number of messages
// that were acknowledged.
func acknowledged(messages int, errs []error) (all []error, acked int) {
	if len(errs) == 0 {
		return make([]error, messages), messages
	}
	for len(errs) < messages {
		errs = append(errs, errNoResponse)
	}
	for _, err := range errs[:messages] {
		if err == nil {
			acked++
		}
	}
	return errs, acked
}
