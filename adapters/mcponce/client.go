package mcponce

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/onlyonce-go/onlyonce/httponce"
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
	DefaultAttempts = 4
	DefaultWait     = 200 * time.Millisecond
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
// ClientMiddleware panics on a negative setting.
func ClientMiddleware(cfg ClientConfig) mcp.Middleware {
	if cfg.Attempts < 0 || cfg.Wait < 0 {
		panic(fmt.Sprintf("mcponce: ClientMiddleware: Attempts is %d and Wait is %v: write positive values, or leave them 0 for the defaults", cfg.Attempts, cfg.Wait))
	}
	cfg.Attempts, cfg.Wait, cfg.MetaKey = cmp.Or(cfg.Attempts, DefaultAttempts), cmp.Or(cfg.Wait, DefaultWait), cmp.Or(cfg.MetaKey, MetaKey)
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
			return cfg.send(ctx, &mcp.ClientRequest[mcp.Params]{Session: session, Params: &own}, own.Meta[cfg.MetaKey], next)
		}
	}
}

// send sends a call until there is a response for its caller.
func (cfg *ClientConfig) send(ctx context.Context, req mcp.Request, key any, next mcp.MethodHandler) (mcp.Result, error) {
	for attempt, wait := 1, cfg.Wait; ; attempt, wait = attempt+1, 2*wait {
		res, err := next(ctx, methodCall, req)
		after, responded, retry := judge(err)
		if retry && attempt < cfg.Attempts && ctx.Err() == nil {
			timer := time.NewTimer(max(after, wait/2+mathrand.N(wait/2+1)))
			select {
			case <-timer.C:
				continue
			case <-ctx.Done():
				timer.Stop()
			}
		}
		if !responded {
			err = &httponce.NoResponseError{Key: fmt.Sprint(key), Attempts: attempt, Err: err}
		}
		return res, err
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
