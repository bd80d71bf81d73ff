package mcponce

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
)

// A call is a call of a protected tool. It is also the context of what runs for it.
type call struct {
	context.Context // of the client's request
	*middleware
	tool      *tool
	req       *mcp.CallToolRequest
	next      mcp.MethodHandler
	request   onlyonce.Request
	admission *httponce.Admission // nil: the call has no key
	res       mcp.Result          // of the tool
	err       error               // of the tool
	failure   error               // why the call has not completed; nil: it has
}

var (
	errNeedsInput = errors.New("the tool asks the client for input")
	errIsError    = errors.New("the result has isError")
	errNoResult   = errors.New("mcponce: the tool returned neither a result nor an error")
)

func (m *middleware) call(ctx context.Context, req *mcp.CallToolRequest, next mcp.MethodHandler) (mcp.Result, error) {
	key, keyed := req.Params.Meta[m.cfg.MetaKey]
	unkeyed := !keyed && !m.cfg.Required(req.Params.Name)
	if unkeyed && m.transact == nil {
		return next(ctx, methodCall, req)
	}
	tool := m.toolOf(ctx, req, next)
	if tool == nil {
		return next(ctx, methodCall, req)
	}
	c := &call{Context: ctx, middleware: m, tool: tool, req: req, next: next}
	if unkeyed {
		return c.respond(nil, m.transact(c))
	}
	if err := c.identify(key, keyed); err != nil {
		return nil, rejection(err)
	}
	if outer := onlyonce.Current(ctx); outer != nil && outer.Record().ID == c.request.ID {
		return next(ctx, methodCall, req) // the same middleware was added twice
	}
	admission, err := m.limiter.Admit(ctx, c.request.ID.Tenant)
	if err != nil {
		return nil, rejection(err)
	}
	defer admission.Release()
	c.admission = admission
	a, err := m.begin(c)
	return c.respond(a, err)
}

func (c *call) Value(key any) any {
	if key == (clientKey{}) {
		return c.Context
	}
	return c.Context.Value(key)
}

// identify sets the request for the command that the call asks for.
func (c *call) identify(value any, keyed bool) (err error) {
	id := &c.request.ID
	text, _ := value.(string)
	switch {
	case !keyed:
		return httponce.Problem{Code: httponce.CodeKeyMissing, Status: http.StatusBadRequest, Detail: fmt.Sprintf(
			"The tool %q needs an idempotency key. Nothing was done. Send a new random key with each new call, in params._meta[%q], and the same key with each retry of that call.", c.tool.name, c.cfg.MetaKey)}
	case text == "":
		return httponce.Problem{Code: httponce.CodeKeyInvalid, Status: http.StatusBadRequest, Detail: fmt.Sprintf(
			"The idempotency key in params._meta[%q] must be a string that is not empty.", c.cfg.MetaKey)}
	}
	if id.Key, err = httponce.ParseKey([]string{text}); err != nil {
		return err
	}
	if id.Tenant = c.cfg.Tenant(c, c.req); id.Tenant == "" {
		return httponce.Problem{Code: httponce.CodeTenantMissing, Status: http.StatusUnauthorized, Detail: "The caller could not be identified. Nothing was done."}
	}
	if id.Operation = c.tool.operation; c.cfg.Operation != nil {
		id.Operation = c.cfg.Operation(c, c.req)
	}
	arguments := []byte(c.req.Params.Arguments)
	if len(arguments) == 0 {
		arguments = []byte("{}") // the SDK does not distinguish the two
	}
	fingerprint, err := onlyonce.FingerprintJSON(arguments)
	if err != nil {
		fingerprint = onlyonce.Fingerprint(arguments)
	}
	c.request.Fingerprint = onlyonce.Fingerprint(c.tool.name, fingerprint)
	return nil
}

// lease runs the tool while the attempt holds the command.
func (m *middleware) lease(c *call) (*onlyonce.Attempt, error) {
	a, err := m.guard.Begin(c, c.request)
	if err != nil || a.Replayed() {
		return a, err
	}
	run, stop := a.Context(c)
	defer stop()
	if run.Err() != nil { // the Observer took most of the lease
		_ = a.Settle(c, onlyonce.Settlement{}) // observed
		return nil, context.Cause(run)
	}
	returned := false
	defer func() {
		if returned {
			return
		}
		text := "the tool ended its goroutine"
		if p := recover(); p != nil {
			text = fmt.Sprint("panic: ", p)
			defer panic(p)
		}
		_ = a.Settle(run, onlyonce.Settlement{State: onlyonce.StateUnknown, Error: text}) // observed
	}()
	s, _ := c.run(run)
	returned = true
	if s.State == onlyonce.StateFailed && !s.Final && run.Err() != nil {
		s = onlyonce.Settlement{State: onlyonce.StateUnknown, Error: s.Error}
	}
	err = a.Settle(run, s)
	if errors.Is(err, onlyonce.ErrTooLarge) {
		a.SetRef("") // it may be too large
		s.Result, s.Error = onlyonce.Result{}, err.Error()
		err = a.Settle(run, s)
	}
	if errors.Is(err, onlyonce.ErrLost) || errors.Is(err, onlyonce.ErrInFlight) {
		c.failure = nil // the response is that of another attempt
		return nil, err
	}
	return a, nil
}

// run runs the tool. It returns how the attempt ends, and the failure.
func (c *call) run(ctx context.Context) (s onlyonce.Settlement, failure error) {
	if c.admission != nil {
		c.admission.Runs(onlyonce.Current(ctx))
	}
	c.res, c.err = c.next(ctx, methodCall, c.req)
	res, _ := c.res.(*mcp.CallToolResult)
	if c.err == nil && res == nil {
		c.res, c.err = nil, onlyonce.Unknown(errNoResult)
	}
	body, unstorable := keep(res, c.err)
	switch c.failure = c.err; {
	case c.err != nil:
	case res.InputRequests != nil || res.NeedsInput():
		c.failure = errNeedsInput
		return s, c.failure
	case res.IsError:
		c.failure = cmp.Or(res.GetError(), errIsError)
	case unstorable != nil: // it cannot be sent either
		c.failure = onlyonce.Unknown(fmt.Errorf("mcponce: the result is not JSON: %w", unstorable))
		c.res, c.err = nil, c.failure
	default:
		return onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{Body: body}}, nil
	}
	if s = onlyonce.Failure(c.failure); s.State == onlyonce.StateFailed {
		s.Result.Body = body
	}
	return s, c.failure
}

// respond returns the response to a call that was run, replayed or rejected.
func (c *call) respond(a *onlyonce.Attempt, err error) (mcp.Result, error) {
	switch {
	case err != nil && c.failure == nil:
		return nil, rejection(err)
	case err != nil || a == nil || !a.Replayed():
		return c.res, c.err
	}
	stored, _ := a.Result()
	if len(stored.Body) == 0 {
		if err := a.Err(); err != nil {
			return nil, rejection(err)
		}
		return &mcp.CallToolResult{
			Meta:    mcp.Meta{MetaReplayed: "omitted"},
			Content: []mcp.Content{&mcp.TextContent{Text: "The call was carried out before. Its result was not stored."}},
		}, nil
	}
	res, failed, err := open(stored.Body)
	switch {
	case err != nil:
		c.guard.Observe(c, onlyonce.Event{Outcome: onlyonce.OutcomeCorrupt, Record: a.Record(), Err: err})
		return nil, rejection(onlyonce.ErrCorrupt)
	case failed != nil:
		return nil, failed
	}
	return res, nil
}

// kept is what a record keeps of an error, and those parts of a result that its own type would change.
type kept struct {
	Error             *jsonrpc.Error  `json:"error,omitempty"`
	Meta              mcp.Meta        `json:"_meta,omitempty"` // with all digits of its numbers
	StructuredContent json.RawMessage `json:"structuredContent,omitempty"`
	Content           []keptContent   `json:"content,omitempty"`
}

type keptContent struct {
	Meta     mcp.Meta `json:"_meta"`
	Resource struct {
		Meta mcp.Meta `json:"_meta"`
	} `json:"resource"`
}

// keep returns what a record keeps of a result or an error.
func keep(res *mcp.CallToolResult, err error) ([]byte, error) {
	if err == nil {
		return res.MarshalJSON()
	}
	var wire *jsonrpc.Error
	if errors.As(err, &wire) && error(wire) != err { // as the SDK sends it
		wire = &jsonrpc.Error{Code: wire.Code, Message: err.Error()}
	} else if wire == nil {
		wire = &jsonrpc.Error{Message: err.Error()}
	}
	return json.Marshal(kept{Error: wire})
}

// open returns the result or the error of JSON-RPC that keep has made the body of a record.
func open(body []byte) (*mcp.CallToolResult, *jsonrpc.Error, error) {
	parts, err := partsOf(body)
	if err != nil || parts.Error != nil {
		return nil, parts.Error, err
	}
	res := new(mcp.CallToolResult)
	if err := res.UnmarshalJSON(body); err != nil {
		return nil, nil, err
	}
	if parts.StructuredContent != nil {
		res.StructuredContent = parts.StructuredContent
	}
	for i := range min(len(res.Content), len(parts.Content)) {
		parts.Content[i].restore(res.Content[i])
	}
	if res.Meta = parts.Meta; res.Meta == nil {
		res.Meta = mcp.Meta{}
	}
	res.Meta[MetaReplayed] = true
	return res, nil, nil
}

// restore gives a content the parts that its own type has changed.
func (k *keptContent) restore(c mcp.Content) {
	switch c := c.(type) {
	case *mcp.TextContent:
		c.Meta = k.Meta
	case *mcp.ImageContent:
		c.Meta = k.Meta
	case *mcp.AudioContent:
		c.Meta = k.Meta
	case *mcp.ResourceLink:
		c.Meta = k.Meta
	case *mcp.EmbeddedResource:
		c.Meta = k.Meta
		if c.Resource != nil {
			c.Resource.Meta = k.Resource.Meta
		}
	}
}

// inParts are what a body has in which partsOf can find something: the names of kept, or a
// character of a name that is escaped.
var inParts = [][]byte{[]byte(`"error"`), []byte(`"_meta"`), []byte(`"structuredContent"`), []byte(`\u`)}

// partsOf returns those parts of a body that the type of a result would change.
func partsOf(body []byte) (kept, error) {
	if !slices.ContainsFunc(inParts, func(part []byte) bool { return bytes.Contains(body, part) }) {
		return kept{}, nil
	}
	var parts kept
	exact := json.NewDecoder(bytes.NewReader(body))
	exact.UseNumber()
	err := exact.Decode(&parts)
	return parts, err
}

// A problem is the data of a rejection.
type problem struct {
	Code       string `json:"code"`
	Retryable  bool   `json:"retryable"`
	RetryAfter int64  `json:"retryAfter,omitempty"` // seconds
}

// rejection returns the error with which a call is rejected because of err.
func rejection(err error) error {
	p := httponce.ProblemOf(err)
	data, err := json.Marshal(problem{p.Code, p.Retryable, int64((p.RetryAfter + time.Second - 1) / time.Second)})
	if err != nil {
		data = nil
	}
	code := int64(p.Status) // outside of the codes that JSON-RPC and MCP reserve
	switch p.Status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		code = jsonrpc.CodeInvalidParams
	case http.StatusInternalServerError:
		code = jsonrpc.CodeInternalError
	}
	return &jsonrpc.Error{Code: code, Message: p.Detail, Data: data}
}
