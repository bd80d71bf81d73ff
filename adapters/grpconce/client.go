package grpconce

import (
	"context"
	"crypto/rand"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/onlyonce-go/onlyonce/internal/resend"
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
	DefaultAttempts = resend.DefaultAttempts
	DefaultWait     = resend.DefaultWait
)

// UnaryClientInterceptor returns an interceptor that gives each call a random key, unless the
// outgoing metadata has one, and sends it again with the same key when that can help: after
// Unavailable, and after an error with a google.rpc.RetryInfo. A replayed error is not retried.
// The context of the call bounds all attempts together. Use it only for servers that support the
// key: on others, a call that is sent again can run twice. Another interceptor that retries belongs
// after this one: before it, each of its retries would get a new key. UnaryClientInterceptor panics
// on a negative setting.
func UnaryClientInterceptor(cfg ClientConfig) grpc.UnaryClientInterceptor {
	policy := resend.New("grpconce: UnaryClientInterceptor", cfg.Attempts, cfg.Wait)
	return func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) (err error) {
		if cfg.Protects != nil && !cfg.Protects(method) {
			return invoke(ctx, method, req, reply, conn, opts...)
		}
		if outgoing, _ := metadata.FromOutgoingContext(ctx); len(outgoing.Get(MetadataKey)) == 0 {
			ctx = metadata.AppendToOutgoingContext(ctx, MetadataKey, rand.Text())
		}
		policy.Do(ctx, func() (after time.Duration, again bool) {
			var header metadata.MD
			err = invoke(ctx, method, req, reply, conn, append(opts[:len(opts):len(opts)], grpc.Header(&header))...)
			after, again = retryAfter(err)
			return after, again && len(header.Get(MetadataReplayed)) == 0
		})
		return err
	}
}

// retryAfter reports whether err says that the call is to be sent again, and the least time before:
// it is Unavailable, or has a google.rpc.RetryInfo.
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
