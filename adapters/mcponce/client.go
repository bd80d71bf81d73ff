package mcponce

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/internal/resend"
)

// A ClientConfig controls a client. The zero ClientConfig has the documented defaults.
type ClientConfig struct {
	Attempts int           // how often a call is sent at most; default 4
	Wait     time.Duration // before the second attempt; it doubles with each attempt, has jitter, and is at least what the server asks for; default 200 ms
	MetaKey  string        // where the key is in the _meta of a call; default MetaKey
	// Protects says which tools' calls get a key. Default: all. Leave out those that change
	// nothing, and those of servers that ignore the key.
	Protects func(tool string) bool
}

// These are the defaults of a ClientConfig.
const (
	DefaultAttempts = resend.DefaultAttempts
	DefaultWait     = resend.DefaultWait
)

// ClientMiddleware returns a middleware for mcp.Client.AddSendingMiddleware. It gives each call of
// a tool a random key, unless its _meta has one, and sends it again with the same key when that
// can help: after a rejection that says so, and when there was no response. The context of the
// call bounds all attempts together. Use it only for servers that support the key: a server that
// ignores it may run a call twice.
//
// A call that stays without a response ends with an httponce.NoResponseError, which has the key.
// If the session is lost, connect again and set the key in the _meta of the same call.
//
// Another layer that retries, and calls the session again, must set the key itself: otherwise, each
// of its retries gets a new key. ClientMiddleware panics on a negative setting.
func ClientMiddleware(cfg ClientConfig) mcp.Middleware {
	policy := resend.New("mcponce: ClientMiddleware", cfg.Attempts, cfg.Wait)
	cfg.MetaKey = cmp.Or(cfg.MetaKey, MetaKey)
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if method != methodCall {
				return next(ctx, method, req)
			}
			session, ok := req.GetSession().(*mcp.ClientSession)
			params, isCall := req.GetParams().(*mcp.CallToolParams)
			if !ok || !isCall {
				return nil, errors.New("mcponce: ClientMiddleware is in a server: add it to the client with Client.AddSendingMiddleware, and Middleware to the server")
			}
			if cfg.Protects != nil && !cfg.Protects(params.Name) {
				return next(ctx, method, req)
			}
			own := *params
			if own.Meta = maps.Clone(params.Meta); own.Meta == nil {
				own.Meta = mcp.Meta{}
			}
			if _, keyed := own.Meta[cfg.MetaKey]; !keyed {
				own.Meta[cfg.MetaKey] = rand.Text()
			}
			call := &mcp.ClientRequest[mcp.Params]{Session: session, Params: &own}
			var res mcp.Result
			var err error
			var responded bool
			attempts := policy.Do(ctx, func() (after time.Duration, again bool) {
				res, err = next(ctx, methodCall, call)
				after, responded, again = judge(err)
				return after, again
			})
			if !responded {
				err = &httponce.NoResponseError{Key: fmt.Sprint(own.Meta[cfg.MetaKey]), Attempts: attempts, Err: err}
			}
			return res, err
		}
	}
}

// rejectedByTransport is the code of the SDK's own error for a call to which its transport got no
// response, or a temporary one of a server in between.
const rejectedByTransport = -32005

// judge reports whether err is a response of the server, whether the call is to be sent again in
// the same session, and the least time before that. The text of an error that is not a response
// begins with "calling" if it is of the transport, and not of a handler that the server has asked
// for input.
func judge(err error) (after time.Duration, responded, retry bool) {
	var response *jsonrpc.Error
	switch {
	case err == nil:
		return 0, true, false
	case !errors.As(err, &response), response.Code == rejectedByTransport && len(response.Data) == 0:
		return 0, false, strings.HasPrefix(err.Error(), "calling ") && !errors.Is(err, mcp.ErrSessionMissing)
	}
	var p problem
	if json.Unmarshal(response.Data, &p) != nil || !p.Retryable {
		return 0, true, false
	}
	return time.Duration(p.RetryAfter) * time.Second, true, true
}
