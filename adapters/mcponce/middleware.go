package mcponce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
)

// These are the names in the _meta of calls and results.
const (
	MetaKey      = "io.github.onlyonce-go/idempotency-key"
	MetaReplayed = "io.github.onlyonce-go/idempotency-replayed" // true, or "omitted" if the first result was not stored
)

const (
	methodCall = "tools/call"
	methodList = "tools/list"
)

// A Config controls which calls are protected, and how. Only Tenant is required.
type Config struct {
	// Tenant returns the tenant of a call. It must use only data that the server has verified, and
	// not the session, because a retry may come in another one. A call for which it returns "" is
	// rejected. See TokenUser and SingleTenant.
	Tenant func(ctx context.Context, req *mcp.CallToolRequest) string
	// Operation returns the name of the operation. Default: "tools/call" and the tool's name, such
	// as "tools/call charge".
	Operation func(ctx context.Context, req *mcp.CallToolRequest) string
	// Protects says which tools are protected. The keys of others are ignored. It is called with
	// what tools/list shows, and the result true is remembered. A tool that tools/list does not
	// show is protected. Default: all but those with readOnlyHint.
	Protects func(tool *mcp.Tool) bool
	// Required says that a protected tool rejects calls without a key. Default: they pass through.
	Required func(tool string) bool
	// MetaKey is where the key is in the _meta of a call. Default: the constant MetaKey.
	MetaKey string
	// Limits has the limits of calls: see httponce.NewLimiter for the fields that count.
	Limits httponce.Config
}

// SingleTenant is the Config.Tenant of a server whose callers are all one tenant, such as a server
// that its client starts and talks to over stdio.
func SingleTenant(context.Context, *mcp.CallToolRequest) string { return "single" }

// TokenUser is the Config.Tenant of a server behind auth.RequireBearerToken whose verifier sets
// TokenInfo.UserID, which it returns.
func TokenUser(_ context.Context, req *mcp.CallToolRequest) string {
	if req.Extra == nil || req.Extra.TokenInfo == nil {
		return ""
	}
	return req.Extra.TokenInfo.UserID
}

// Middleware returns a middleware for mcp.Server.AddReceivingMiddleware that runs a tool once for
// each idempotency key. It panics on a nil Guard and on a Config without a Tenant. The context of
// a tool carries the attempt (see onlyonce.Current). It ends when the lease is lost, but not with
// the client (see ClientContext).
func Middleware(g *onlyonce.Guard, cfg Config) mcp.Middleware {
	m := newMiddleware("Middleware", g, cfg)
	m.begin = m.lease
	return m.wrap
}

// MiddlewareTx is Middleware for tools whose rows are in the store's own database: the rows and
// the result are committed together, or neither is. A tool gets its transaction from Tx. Without a
// key, it also runs in a transaction, and nothing is recorded.
//
// The rows are rolled back unless the call completes: also after a result with isError, and after
// one that asks the client for input. A tool may run more than once if the database requires a
// retry. After a panic, nothing is recorded.
func MiddlewareTx[TX any](g *onlyonce.TxGuard[TX], cfg Config) mcp.Middleware {
	if g == nil {
		panic("mcponce: MiddlewareTx: the TxGuard is nil: pass what onlyonce.NewTx returns")
	}
	m := newMiddleware("MiddlewareTx", g.Guard, cfg)
	m.begin = func(c *call) (*onlyonce.Attempt, error) {
		return g.BeginTx(c, c.request, func(ctx context.Context, tx TX) (onlyonce.Settlement, error) {
			return c.run(context.WithValue(ctx, txKey{}, tx))
		})
	}
	m.transact = func(c *call) error {
		return g.Transact(c, func(ctx context.Context, tx TX) error {
			_, err := c.run(context.WithValue(ctx, txKey{}, tx))
			return err
		})
	}
	return m.wrap
}

type (
	txKey     struct{}
	clientKey struct{}
)

// Tx returns the transaction of a tool that MiddlewareTx runs. It panics if there is none of type
// TX. A tool that is not protected, such as one with readOnlyHint, has none.
func Tx[TX any](ctx context.Context) TX {
	tx, ok := ctx.Value(txKey{}).(TX)
	if !ok {
		panic(fmt.Sprintf("mcponce: Tx: there is no transaction of type %v: pass the context of a tool that is protected, and add MiddlewareTx to the server", reflect.TypeFor[TX]()))
	}
	return tx
}

// ClientContext returns the context of the client's request, which ends when the client cancels it
// or is known to have gone. The context of a tool does not end then, so that the call can finish.
func ClientContext(ctx context.Context) context.Context {
	if client, ok := ctx.Value(clientKey{}).(context.Context); ok {
		return client
	}
	return ctx
}

type middleware struct {
	guard   *onlyonce.Guard
	cfg     Config
	limiter *httponce.Limiter
	// begin runs a call that has a key, unless there is a result to replay.
	begin func(*call) (*onlyonce.Attempt, error)
	// transact runs a call without a key in a transaction; nil: it passes through.
	transact func(*call) error

	mu        sync.RWMutex
	protected map[string]*tool // those that are known to be protected, by their names
}

// A tool is one that is protected.
type tool struct {
	name      []byte
	operation string
}

func newTool(name string) *tool { return &tool{[]byte(name), methodCall + " " + name} }

func newMiddleware(constructor string, g *onlyonce.Guard, cfg Config) *middleware {
	switch {
	case g == nil:
		panic("mcponce: " + constructor + ": the Guard is nil: pass what onlyonce.New returns")
	case cfg.Tenant == nil:
		panic("mcponce: " + constructor + ": Config.Tenant is nil: set a function that returns the tenant of a call, such as TokenUser, or SingleTenant if all callers are one tenant")
	}
	cfg.MetaKey = cmp.Or(cfg.MetaKey, MetaKey)
	if cfg.Protects == nil {
		cfg.Protects = func(tool *mcp.Tool) bool { return tool.Annotations == nil || !tool.Annotations.ReadOnlyHint }
	}
	if cfg.Required == nil {
		cfg.Required = func(string) bool { return false }
	}
	return &middleware{guard: g, cfg: cfg, limiter: httponce.NewLimiter(g, cfg.Limits), protected: map[string]*tool{}}
}

func (m *middleware) wrap(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		switch method {
		case methodCall:
			if r, ok := req.(*mcp.CallToolRequest); ok {
				return m.call(ctx, r, next)
			}
			return nil, errors.New("mcponce: Middleware is in a client: add it to the server with Server.AddReceivingMiddleware, and ClientMiddleware to the client")
		case methodList:
			res, err := next(ctx, method, req)
			if list, ok := res.(*mcp.ListToolsResult); ok && err == nil {
				return m.mark(list), nil
			}
			return res, err
		}
		return next(ctx, method, req)
	}
}

// mark returns a list with idempotentHint for the protected tools whose calls must have a key.
func (m *middleware) mark(list *mcp.ListToolsResult) *mcp.ListToolsResult {
	marked := *list
	marked.Tools = slices.Clone(list.Tools)
	for i, tool := range marked.Tools {
		if m.protect(tool) == nil || !m.cfg.Required(tool.Name) {
			continue
		}
		own, annotations := *tool, mcp.ToolAnnotations{}
		if tool.Annotations != nil {
			annotations = *tool.Annotations
		}
		annotations.IdempotentHint = true
		own.Annotations, marked.Tools[i] = &annotations, &own
	}
	return &marked
}

// protect returns a listed tool, which it remembers, or nil if it is not protected.
func (m *middleware) protect(listed *mcp.Tool) *tool {
	if !m.cfg.Protects(listed) {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.protected[listed.Name] == nil {
		m.protected[listed.Name] = newTool(listed.Name)
	}
	return m.protected[listed.Name]
}

// toolOf returns the tool of a call, or nil if that is not protected. It asks tools/list, because
// a tool may have been added since. Only names that were listed are remembered.
func (m *middleware) toolOf(ctx context.Context, req *mcp.CallToolRequest, next mcp.MethodHandler) *tool {
	name := req.Params.Name
	m.mu.RLock()
	known := m.protected[name]
	m.mu.RUnlock()
	if known != nil {
		return known
	}
	for cursor := ""; ; {
		res, err := next(ctx, methodList, &mcp.ListToolsRequest{Session: req.Session, Params: &mcp.ListToolsParams{Cursor: cursor}, Extra: req.Extra})
		list, ok := res.(*mcp.ListToolsResult)
		if err != nil || !ok {
			return newTool(name)
		}
		for _, listed := range list.Tools {
			if listed.Name == name {
				return m.protect(listed)
			}
		}
		if cursor = list.NextCursor; cursor == "" {
			return newTool(name)
		}
	}
}
