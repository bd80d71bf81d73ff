package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/optimistic"
)

// ErrForgotten says that the table, or the item that Migrate creates in it, is missing,
// although Migrate was called: somebody deleted the table or its items. No new command is
// run until Migrate is called again.
var ErrForgotten = errors.New("the DynamoDB table has forgotten the records of its commands, or has never had any: find out why, then call Migrate once")

// errConflict says that nothing was changed, because the record is another than expected.
var errConflict = errors.New("the record has changed meanwhile")

// errEnding says that nothing was changed, because the record may be expiring at this
// moment, by the clock of another process.
var errEnding = errors.New("the record is about to expire")

// errAnew says that a change was stored whose instants a wrong clock has given.
var errAnew = errors.New("the clock was set meanwhile")

// An unreachable error says that DynamoDB has not executed a request. Sending it again may
// help. A request that was in doubt may have taken effect.
type unreachable struct {
	error
	doubt bool
}

func (e unreachable) Unwrap() error { return e.error }

// A throttled error says that DynamoDB has rejected a request because there were too many.
type throttled struct{ error }

func (e throttled) Unwrap() error { return e.error }

// patience is how long one request may take. A call makes further ones.
const patience = 3 * time.Second

// The codes of DynamoDB's errors after which the same request may succeed later.
var (
	tooMany = map[string]bool{
		"ProvisionedThroughputExceededException": true, "ThrottlingException": true, "Throttling": true,
		"RequestLimitExceeded": true, "LimitExceededException": true, "SlowDown": true, "TooManyRequestsException": true,
	}
	inConflict = map[string]bool{
		"TransactionConflictException": true, "TransactionInProgressException": true, "ReplicatedWriteConflictException": true,
		"RequestTimeTooSkewed": true, "RequestExpired": true, // the client corrects its clock
	}
)

// request sends one request, and returns the store's error for its error.
func (s *Store) request(ctx context.Context, send func(ctx context.Context) error) error {
	sent := false
	try, cancel := context.WithTimeout(context.WithValue(ctx, sentKey{}, &sent), patience)
	defer cancel()
	err := send(try)
	var failed smithy.APIError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &failed):
		return s.classify(err, failed.ErrorCode())
	case ctx.Err() != nil:
		return ctx.Err()
	case !sent && try.Err() == nil:
		return err // no credentials, or no endpoint
	}
	return unreachable{error: err, doubt: sent}
}

// classify returns the store's error for an error with a code.
func (s *Store) classify(err error, code string) error {
	var response *smithyhttp.ResponseError
	switch {
	case code == "ConditionalCheckFailedException":
		return errConflict
	case code == "ResourceNotFoundException":
		s.mark.doubt()
		return ErrForgotten
	case tooMany[code]:
		return throttled{err}
	case inConflict[code]:
		return unreachable{error: err}
	case errors.As(err, &response) && response.HTTPStatusCode() < 500:
		return err
	}
	return unreachable{error: err, doubt: true}
}

// doubtful reports whether an error leaves in doubt whether a request took effect.
func doubtful(err error) bool {
	var away unreachable
	return errors.As(err, &away) && away.doubt || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, errAnew)
}

// The pauses after requests that were throttled.
const (
	firstPause   = 25 * time.Millisecond
	longestPause = time.Second
)

// repeat calls try again while a record has changed meanwhile or DynamoDB can't be reached,
// until the time of a call is over. The pause after a request that was throttled doubles
// each time.
func (s *Store) repeat(ctx context.Context, try func(ctx context.Context) error) error {
	pause := firstPause
	return optimistic.Repeat(ctx, s.timeout, func(ctx context.Context) error {
		err := try(ctx)
		var slow throttled
		if errors.As(err, &slow) {
			timer := time.NewTimer(pause/2 + rand.N(pause))
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
			pause = min(2*pause, longestPause)
		}
		return err
	}, func(err error) bool {
		var away unreachable
		var slow throttled
		var unknown clockError
		return errors.Is(err, errConflict) || errors.Is(err, errEnding) || errors.Is(err, errAnew) ||
			errors.As(err, &away) || errors.As(err, &slow) || errors.As(err, &unknown)
	}, func(err error) error {
		return fmt.Errorf("the call was not done within %v: %w", s.timeout, err)
	})
}

// tooLarge returns the error of a record that is too large.
func tooLarge(what string, size, most int) error {
	return fmt.Errorf("%w: %s %d bytes together, and nothing was written: use at most %d", onlyonce.ErrTooLarge, what, size, most)
}
