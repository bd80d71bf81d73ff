package lambdaonce

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambda/messages"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/canonical"
	"github.com/onlyonce-go/onlyonce/internal/rejectedtx"
)

// A Config controls how the events of a function become commands. Operation is required, and so
// is one of Key and KeyFields.
type Config[In any] struct {
	// Operation is the name of the operation, such as "charge". It must not change as long as
	// an event may be repeated.
	Operation string

	// Key returns the key of an event, which the event has in common with its repeats and with
	// no other event of the tenant. An event for which it returns "" is rejected.
	Key func(In) string

	// KeyFields are JSON Pointers (RFC 6901), such as /order/id, to the parts of an event that
	// make its key. An event that lacks one of them, or in which one is null, is rejected. So is
	// an event that has one of their names in another case, too, because encoding/json ignores the
	// case of names.
	KeyFields []string

	// Fields are JSON Pointers to the parts of an event that must be the same in a repeat. A
	// different event with the same key is rejected. Default: the whole event. An event in which
	// one of these parts can be read in two ways is compared byte by byte, as by
	// httponce.CanonicalJSON.
	Fields []string

	// Tenant returns the tenant of an event. An event for which it returns "" is rejected.
	// Nil: whoever may invoke the function shares one namespace of keys.
	Tenant func(context.Context, In) string
}

// Handler returns a handler for lambda.Start that runs h once for the key of an event. A repeat
// gets the first result. It panics on a nil Guard or handler and on an invalid Config.
//
// The rules are those of onlyonce.Do. h's context ends as that of a request of HTTPHandler does.
// An error that h returns after that leaves the outcome unknown. A result that is larger than
// Lambda returns is an error, but the command has completed.
//
// An error of h is returned unchanged. The errorType of an error of the package onlyonce is its
// name, such as "ErrInFlight", so that a state machine can choose which errors it retries: see the
// documentation of this package.
func Handler[In, Out any](g *onlyonce.Guard, h func(context.Context, In) (Out, error), cfg Config[In]) lambda.Handler {
	cfg.check("Handler", g != nil && h != nil)
	return function[In, Out]{cfg, func(ctx context.Context, at time.Time, req onlyonce.Request, in In) (onlyonce.Answer[Out], error) {
		return onlyonce.Do(ctx, g, req, func(ctx context.Context) (Out, error) {
			ctx, stop := until(ctx, at)
			defer stop()
			out, err := h(ctx, in)
			return out, late(ctx, err)
		})
	}}
}

// HandlerTx is Handler for a function whose rows are in the store's own database: its rows and
// its result are committed together, or neither is. See onlyonce.DoTx.
func HandlerTx[In, Out, TX any](g *onlyonce.TxGuard[TX], h func(context.Context, TX, In) (Out, error), cfg Config[In]) lambda.Handler {
	cfg.check("HandlerTx", g != nil && h != nil)
	return function[In, Out]{cfg, func(ctx context.Context, at time.Time, req onlyonce.Request, in In) (onlyonce.Answer[Out], error) {
		return onlyonce.DoTx(ctx, g, req, func(ctx context.Context, tx TX) (Out, error) {
			ctx, stop := until(ctx, at)
			defer stop()
			return h(ctx, tx, in)
		})
	}}
}

type function[In, Out any] struct {
	cfg Config[In]
	run func(ctx context.Context, at time.Time, req onlyonce.Request, in In) (onlyonce.Answer[Out], error)
}

func (f function[In, Out]) Invoke(ctx context.Context, payload []byte) ([]byte, error) {
	var in In
	if err := json.Unmarshal(payload, &in); err != nil {
		return nil, fmt.Errorf("lambdaonce: decode the event: %w", err)
	}
	req, err := f.cfg.request(ctx, payload, in)
	if err != nil {
		return nil, err
	}
	at := endOf(ctx)
	ctx, stop := until(ctx, at)
	defer stop()
	answer, err := f.run(ctx, at, req, in)
	if err != nil {
		return nil, named(err)
	}
	result, err := encode(answer.Value)
	if len(result) > maxPayload {
		return nil, fmt.Errorf("lambdaonce: the result has %d bytes, more than AWS Lambda returns: the command has completed and does not run again", len(result))
	}
	return result, err
}

// request returns the command of an event.
func (cfg *Config[In]) request(ctx context.Context, payload []byte, in In) (req onlyonce.Request, err error) {
	req.ID.Operation = cfg.Operation
	if cfg.Tenant != nil {
		if req.ID.Tenant = cfg.Tenant(ctx, in); req.ID.Tenant == "" {
			return req, errors.New("lambdaonce: the event has no tenant: Config.Tenant returned an empty string")
		}
	}
	if cfg.Key != nil {
		req.ID.Key = cfg.Key(in)
	} else if req.ID.Key, err = cfg.keyOf(payload); err != nil {
		return req, err
	}
	if req.ID.Key == "" {
		return req, errors.New("lambdaonce: the event has no key: Config.Key returned an empty string")
	}
	if req.Fingerprint, err = onlyonce.FingerprintJSON(payload, cfg.Fields...); err != nil {
		return req, fmt.Errorf("lambdaonce: compare the event: %w", err)
	}
	if canonical.HasTwoReadings(payload, canonical.PointerTokens(cfg.Fields)) {
		req.Fingerprint = onlyonce.Fingerprint(payload)
	}
	return req, nil
}

// keyOf returns a hash of the KeyFields.
func (cfg *Config[In]) keyOf(payload []byte) (string, error) {
	w := canonical.NewWriter()
	defer w.Release()
	if _, err := w.Write(payload, cfg.KeyFields...); err != nil {
		return "", fmt.Errorf("lambdaonce: read the key of the event: %w", err)
	}
	for fields := w.Selected(nil)[1:]; len(fields) > 0; fields = fields[2:] {
		if value := string(fields[1]); value == "" || value == "null" {
			return "", fmt.Errorf("lambdaonce: the event has no key: there is nothing at %s", fields[0])
		}
	}
	if canonical.HasTwoReadings(payload, canonical.PointerTokens(cfg.KeyFields)) {
		return "", fmt.Errorf("lambdaonce: the key of the event can be read in two ways: write the names of %s in this case only, and long numbers without a point or an exponent", strings.Join(cfg.KeyFields, ", "))
	}
	hash, err := onlyonce.FingerprintJSON(payload, cfg.KeyFields...)
	return hex.EncodeToString(hash), err
}

// check panics if the Config is not valid.
func (cfg *Config[In]) check(function string, complete bool) {
	prefix := "lambdaonce: " + function + ": "
	if !complete {
		panic(prefix + "the Guard or the handler is nil")
	}
	if cfg.Operation == "" {
		panic(prefix + `Config.Operation is empty: set it to the name of the operation, such as "charge"`)
	}
	if (cfg.Key == nil) == (len(cfg.KeyFields) == 0) {
		panic(prefix + "set either Config.Key or Config.KeyFields, which say what the key of an event is")
	}
	for _, pointers := range [][]string{cfg.KeyFields, cfg.Fields} {
		if _, err := onlyonce.FingerprintJSON([]byte("null"), pointers...); err != nil {
			panic(prefix + err.Error())
		}
	}
}

// names are those of the errors that a caller of the function can act on.
var names = []struct {
	err  error
	name string
}{
	{onlyonce.ErrInFlight, "ErrInFlight"},
	{onlyonce.ErrUnavailable, "ErrUnavailable"},
	{onlyonce.ErrLost, "ErrLost"},
	{onlyonce.ErrInDoubt, "ErrInDoubt"}, // is also an ErrUnknown
	{onlyonce.ErrMismatch, "ErrMismatch"},
	{onlyonce.ErrKeyExpired, "ErrKeyExpired"},
	{onlyonce.ErrUnknown, "ErrUnknown"},
	{onlyonce.ErrFailed, "ErrFailed"},
	{onlyonce.ErrCorrupt, "ErrCorrupt"},
}

// named returns the error with a name that Lambda passes on as errorType. If the database has
// rejected the function's transaction, the store is not away, and the error has no name.
func named(err error) error {
	for _, n := range names {
		if n.err == onlyonce.ErrUnavailable && rejectedtx.In(err) != nil {
			continue
		}
		if errors.Is(err, n.err) {
			return messages.InvokeResponse_Error{Type: n.name, Message: err.Error()}
		}
	}
	return err
}
