package grpconce

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// A ClientConfig controls a client. The zero ClientConfig has the documented defaults.
type ClientConfig struct {
	Attempts int           // how often a call is sent at most; default 4
	Wait     time.Duration // before the second attempt; it doubles with each attempt, has jitter, and is at least what the server's RetryInfo says; default 200 ms
	// Protects says which methods get a key. Default: all. Leave out those that change nothing.
	Protects func(fullMethod string) bool
}

// These are the defaults of a ClientConfig.
const (
	DefaultAttempts = 4
	DefaultWait     = 200 * time.Millisecond
)

// UnaryClientInterceptor returns an interceptor that gives each call a random key, unless the
// outgoing metadata has one, and sends it again with the same key when that can help: after
// Unavailable, and after an error with a google.rpc.RetryInfo. A replayed error is not retried.
// The context of the call bounds all attempts together. Use it only for servers that support the
// key: on others, a call that is sent again can run twice. It panics on a negative setting.
func UnaryClientInterceptor(cfg ClientConfig) grpc.UnaryClientInterceptor {
	if cfg.Attempts < 0 || cfg.Wait < 0 {
		panic(fmt.Sprintf("grpconce: UnaryClientInterceptor: Attempts is %d and Wait is %v: write positive values, or leave them 0 for the defaults", cfg.Attempts, cfg.Wait))
	}
	cfg.Attempts, cfg.Wait = cmp.Or(cfg.Attempts, DefaultAttempts), cmp.Or(cfg.Wait, DefaultWait)
	return func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if cfg.Protects != nil && !cfg.Protects(method) {
			return invoke(ctx, method, req, reply, conn, opts...)
		}
		if outgoing, _ := metadata.FromOutgoingContext(ctx); len(outgoing.Get(MetadataKey)) == 0 {
			ctx = metadata.AppendToOutgoingContext(ctx, MetadataKey, rand.Text())
		}
		for attempt, wait := 1, cfg.Wait; ; attempt, wait = attempt+1, 2*wait {
			var header metadata.MD
			err := invoke(ctx, method, req, reply, conn, append(opts[:len(opts):len(opts)], grpc.Header(&header))...)
			after, retry := retryAfter(err)
			if !retry || attempt >= cfg.Attempts || len(header.Get(MetadataReplayed)) > 0 {
				return err
			}
			timer := time.NewTimer(max(after, wait/2+mathrand.N(wait/2+1)))
			select {
			case <-ctx.Done():
				timer.Stop()
				return err
			case <-timer.C:
			}
		}
	}
}

// retryAfter reports whether a call that got err is to be sent again, and the least time before.
func retryAfter(err error) (after time.Duration, retry bool) {
	if err == nil {
		return 0, false
	}
	s := status.Convert(err)
	retry = s.Code() == codes.Unavailable
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			after, retry = info.GetRetryDelay().AsDuration(), true
		}
	}
	return after, retry
}
