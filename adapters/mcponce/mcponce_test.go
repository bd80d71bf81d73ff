package mcponce_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/mcponce"
	"github.com/onlyonce-go/onlyonce/internal/adaptertest"
)

type note struct {
	Note string `json:"note"`
}

// A tool is what the tool "charge" does.
type tool func(ctx context.Context, req *mcp.CallToolRequest, run int32, note string) (*mcp.CallToolResult, any, error)

// A shop is a server with a client. Its tool "charge" counts its runs, and its tool "look" is
// read-only.
type shop struct {
	t       *testing.T
	store   *adaptertest.Store
	server  *mcp.Server
	client  *mcp.Client
	session *mcp.ClientSession
	runs    atomic.Int32
	looks   atomic.Int32
	events  chan onlyonce.Event
}

// charged is a tool that has all kinds of content.
func charged(_ context.Context, _ *mcp.CallToolRequest, run int32, note string) (*mcp.CallToolResult, any, error) {
	return &mcp.CallToolResult{
		Meta: mcp.Meta{"trace": json.Number("9007199254740993")},
		Content: []mcp.Content{
			&mcp.TextContent{Text: fmt.Sprintf("<%s> %d", note, run), Annotations: &mcp.Annotations{Audience: []mcp.Role{"user"}}},
			&mcp.ImageContent{MIMEType: "image/png", Data: []byte{0, 1, 0xFE}},
			&mcp.ResourceLink{URI: "shop://receipts/1", Name: "receipt"},
		},
	}, json.RawMessage(fmt.Sprintf(`{"z":9007199254740993,"a":[1.50,"<%s>"],"run":%d}`, note, run)), nil
}

// A wiring is how a shop is wired. The zero wiring has the defaults.
type wiring struct {
	guard   onlyonce.Config
	once    mcponce.Config
	tx      bool
	store   func(*adaptertest.Store) onlyonce.Store // wraps the store
	client  *mcp.ClientOptions
	sending []mcp.Middleware // of the client
}

// newShop serves a shop until the end of the test.
func newShop(t *testing.T, w wiring, do tool) *shop {
	t.Helper()
	s := &shop{t: t, store: adaptertest.NewStore(), events: make(chan onlyonce.Event, 100)}
	w.guard.Observer = func(_ context.Context, e onlyonce.Event) { s.events <- e }
	if w.once.Tenant == nil {
		w.once.Tenant = func(_ context.Context, req *mcp.CallToolRequest) string {
			account, _ := req.Params.Meta["account"].(string)
			return account
		}
	}
	var store onlyonce.Store = s.store
	if w.store != nil {
		store = w.store(s.store)
	}
	once := mcponce.Middleware(onlyonce.New(store, w.guard), w.once)
	if w.tx {
		once = mcponce.MiddlewareTx(onlyonce.NewTx(s.store, w.guard), w.once)
	}
	s.server = mcp.NewServer(&mcp.Implementation{Name: "shop", Version: "1"}, nil)
	s.server.AddReceivingMiddleware(recovering, once)
	mcp.AddTool(s.server, &mcp.Tool{Name: "charge"}, func(ctx context.Context, req *mcp.CallToolRequest, in note) (*mcp.CallToolResult, any, error) {
		return do(ctx, req, s.runs.Add(1), in.Note)
	})
	mcp.AddTool(s.server, &mcp.Tool{Name: "look", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, Title: "Look"}}, func(context.Context, *mcp.CallToolRequest, note) (*mcp.CallToolResult, any, error) {
		s.looks.Add(1)
		return &mcp.CallToolResult{}, nil, nil
	})
	s.client = mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, w.client)
	s.client.AddSendingMiddleware(w.sending...)
	s.session = s.connect()
	return s
}

// connect opens a session, which is closed at the end of the test.
func (s *shop) connect() *mcp.ClientSession {
	s.t.Helper()
	here, there := mcp.NewInMemoryTransports()
	serving, err := s.server.Connect(s.t.Context(), there, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	session, err := s.client.Connect(s.t.Context(), here, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = session.Close()
		_ = serving.Wait()
	})
	return session
}

// recovering is a middleware that recovers from panics.
func recovering(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (res mcp.Result, err error) {
		defer func() {
			if p := recover(); p != nil {
				res, err = nil, fmt.Errorf("recovered: %v", p)
			}
		}()
		return next(ctx, method, req)
	}
}

func params(account, key, name, note string) *mcp.CallToolParams {
	p := &mcp.CallToolParams{Meta: mcp.Meta{"account": account}, Name: name, Arguments: map[string]any{"note": note}}
	if key != "" {
		p.Meta[mcponce.MetaKey] = key
	}
	return p
}

func (s *shop) call(account, key, note string) (*mcp.CallToolResult, error) {
	return s.session.CallTool(s.t.Context(), params(account, key, "charge", note))
}

// textOf returns the text of a result, and whether it is a replay.
func textOf(res *mcp.CallToolResult) (text string, replayed bool) {
	if res == nil {
		return "", false
	}
	for _, content := range res.Content {
		if part, ok := content.(*mcp.TextContent); ok {
			text += part.Text
		}
	}
	return text, res.Meta[mcponce.MetaReplayed] == true
}

func (s *shop) want(text string, replayed bool, res *mcp.CallToolResult, err error) {
	s.t.Helper()
	wantResult(s.t, text, replayed, res, err)
}

func wantResult(t *testing.T, text string, replayed bool, res *mcp.CallToolResult, err error) {
	t.Helper()
	if gotText, gotReplayed := textOf(res); gotText != text || gotReplayed != replayed || err != nil {
		t.Errorf("got %q, replayed %v, %v; want %q, %v", gotText, gotReplayed, err, text, replayed)
	}
}

// wantRejection fails unless err has a code of JSON-RPC and of a problem, and a time to wait if a
// retry can help.
func wantRejection(t *testing.T, err error, code int64, problem string, retry bool) {
	t.Helper()
	var got *jsonrpc.Error
	var data struct {
		Code       string
		Retryable  bool
		RetryAfter int
	}
	if errors.As(err, &got) && len(got.Data) > 0 {
		if err := json.Unmarshal(got.Data, &data); err != nil {
			t.Error(err)
		}
	}
	if got == nil || got.Code != code || data.Code != problem || data.Retryable != retry || data.RetryAfter > 0 != retry {
		t.Errorf("got %v (%+v), want %d, %q, retry %v", err, data, code, problem, retry)
	}
}

func (s *shop) wantRuns(n int32) {
	s.t.Helper()
	if got := s.runs.Load(); got != n {
		s.t.Errorf("%d runs, want %d", got, n)
	}
}

// wantState fails unless the record of account 7's key k is in a state; "": there is none.
func (s *shop) wantState(want onlyonce.State) {
	s.t.Helper()
	rec, err := s.store.Lookup(s.t.Context(), onlyonce.ID{Tenant: "7", Operation: "tools/call charge", Key: "k"})
	if rec.State != want || (err == nil) != (want != "") {
		s.t.Errorf("the record is %+v, %v, want %s", rec, err, want)
	}
}

// asJSON writes a result without the mark of a replay.
func asJSON(t *testing.T, res *mcp.CallToolResult) string {
	t.Helper()
	if res != nil {
		delete(res.Meta, mcponce.MetaReplayed)
	}
	text, err := json.Marshal(res)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestServer_ARepeatGetsTheFirstResult(t *testing.T) {
	s := newShop(t, wiring{}, charged)
	first, err := s.call("7", "k", "a")
	s.want("<a> 1", false, first, err)
	for range 2 {
		again, err := s.call("7", "k", "a")
		s.want("<a> 1", true, again, err)
		if first, again := asJSON(t, first), asJSON(t, again); first != again {
			t.Errorf("the first result was %s, the replay is %s", first, again)
		}
	}
	s.wantState(onlyonce.StateCompleted)
	res, err := s.call("8", "k", "a")
	s.want("<a> 2", false, res, err)
	for run := range 2 {
		res, err := s.call("7", "", "a")
		s.want(fmt.Sprint("<a> ", 3+run), false, res, err)
	}
}

// The client of the SDK rounds numbers, so this compares what the server sends.
func TestServer_AReplayIsTheFirstResultByteForByte(t *testing.T) {
	d := newDesk(t, onlyonce.Config{}, mcponce.Config{Tenant: mcponce.SingleTenant}, func(context.Context, *mcp.CallToolRequest) (mcp.Result, error) {
		res, structured, _ := charged(t.Context(), nil, 1, "a & b")
		res.StructuredContent = structured
		large := mcp.Meta{"order": int64(9007199254740993)}
		res.Content = append(res.Content,
			&mcp.TextContent{Text: "b", Meta: large},
			&mcp.ImageContent{Data: []byte("c"), MIMEType: "image/png", Meta: large},
			&mcp.AudioContent{Data: []byte("d"), MIMEType: "audio/wav", Meta: large},
			&mcp.ResourceLink{URI: "file:///e", Name: "e", Meta: large},
			&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "file:///f", Text: "f", Meta: large}, Meta: large},
			&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "file:///g", Text: "g", Meta: large}})
		return res, nil
	})
	var sent [2]string
	for i := range sent {
		res, err := d.call(d.request("k", `{"note":"a"}`))
		if err != nil {
			t.Fatal(err)
		}
		sent[i] = asJSON(t, res.(*mcp.CallToolResult))
	}
	if sent[0] != sent[1] || !strings.Contains(sent[0], `"structuredContent":{"z":9007199254740993,"a":[1.50,`) || !strings.Contains(sent[0], `"trace":9007199254740993`) {
		t.Errorf("the first result was %s, the replay is %s", sent[0], sent[1])
	}
}

func TestServer_RejectsWithACodeAndData(t *testing.T) {
	running, goOn := make(chan struct{}), make(chan struct{})
	s := newShop(t, wiring{once: mcponce.Config{Required: func(tool string) bool { return tool != "other" }}}, func(ctx context.Context, req *mcp.CallToolRequest, run int32, note string) (*mcp.CallToolResult, any, error) {
		if note == "slow" {
			close(running)
			<-goOn
		}
		return charged(ctx, req, run, note)
	})
	_, err := s.call("7", "", "a")
	wantRejection(t, err, jsonrpc.CodeInvalidParams, "idempotency_key_missing", false)
	if text := fmt.Sprint(err); !strings.Contains(text, `The tool "charge" needs an idempotency key`) || !strings.Contains(text, `params._meta["io.github.onlyonce-go/idempotency-key"]`) {
		t.Errorf("the text is %s", text)
	}
	for _, key := range []any{"k!", "", 7, nil, map[string]any{}} {
		p := params("7", "", "charge", "a")
		p.Meta[mcponce.MetaKey] = key
		_, err = s.session.CallTool(t.Context(), p)
		wantRejection(t, err, jsonrpc.CodeInvalidParams, "idempotency_key_invalid", false)
	}
	_, err = s.call("", "k", "a")
	wantRejection(t, err, 401, "tenant_missing", false)
	s.wantRuns(0)
	res, err := s.call("7", "k", "a")
	s.want("<a> 1", false, res, err)
	_, err = s.call("7", "k", "b")
	wantRejection(t, err, jsonrpc.CodeInvalidParams, "idempotency_key_reused", false)
	var ended sync.WaitGroup
	ended.Go(func() { _, _ = s.call("7", "slow", "slow") })
	<-running
	_, err = s.call("7", "slow", "slow")
	wantRejection(t, err, 409, "request_in_progress", true)
	close(goOn)
	ended.Wait()
	s.wantRuns(2)
}

func TestServer_ADuplicateWaitsForTheRunningCall(t *testing.T) {
	running, goOn := make(chan struct{}), make(chan struct{})
	s := newShop(t, wiring{guard: onlyonce.Config{Wait: onlyonce.DefaultLease}}, func(ctx context.Context, req *mcp.CallToolRequest, run int32, note string) (*mcp.CallToolResult, any, error) {
		close(running)
		<-goOn
		return charged(ctx, req, run, note)
	})
	var ended sync.WaitGroup
	ended.Go(func() {
		res, err := s.call("7", "k", "a")
		s.want("<a> 1", false, res, err)
	})
	<-running
	ended.Go(func() {
		res, err := s.call("7", "k", "a")
		s.want("<a> 1", true, res, err)
	})
	s.wantEvent(onlyonce.OutcomeWaited)
	close(goOn)
	ended.Wait()
}

// wantEvent waits for the next decision.
func (s *shop) wantEvent(want onlyonce.Outcome) {
	s.t.Helper()
	if e := <-s.events; e.Outcome != want {
		s.t.Errorf("the outcome is %s, %v, want %s", e.Outcome, e.Err, want)
	}
}

func TestServer_ArgumentsAreComparedByTheirMeaning(t *testing.T) {
	d := newDesk(t, onlyonce.Config{}, mcponce.Config{Tenant: mcponce.SingleTenant}, nil)
	for _, c := range []struct {
		key, first, repeat string
		same               bool
	}{
		{"order", `{"a":1,"b":[2,3]}`, `{ "b" : [2, 3.0], "a" : 1 }`, true},
		{"none", ``, `{}`, true},
		{"exact", `{"a":9007199254740993}`, `{"a":9007199254740992}`, false},
		{"twice", `{"a":1,"a":2}`, `{"a":1,"a":2}`, true},
		{"twice but different", `{"a":1,"a":2}`, `{"a":2,"a":2}`, false},
	} {
		key := strings.ReplaceAll(c.key, " ", "-")
		if _, err := d.call(d.request(key, c.first)); err != nil {
			t.Error(err)
		}
		if _, err := d.call(d.request(key, c.repeat)); (err == nil) != c.same {
			t.Errorf("%s: %v", c.key, err)
		}
	}
}

// failOnce is a tool that fails the first time.
func failOnce(fail func() (*mcp.CallToolResult, error)) tool {
	return func(ctx context.Context, req *mcp.CallToolRequest, run int32, note string) (*mcp.CallToolResult, any, error) {
		if run > 1 {
			return charged(ctx, req, run, note)
		}
		res, err := fail()
		return res, nil, err
	}
}

// failures are the ways in which a tool fails. Each has the mark of an error.
var failures = map[string]func(mark func(error) error) (*mcp.CallToolResult, error){
	"an error": func(mark func(error) error) (*mcp.CallToolResult, error) { return nil, mark(errors.New("sold out")) },
	"a result": func(mark func(error) error) (*mcp.CallToolResult, error) {
		res := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "sold out"}}, StructuredContent: json.RawMessage(`{"left":0}`)}
		res.SetError(mark(errors.New("there is none left")))
		return res, nil
	},
}

func unmarked(err error) error { return err }

func TestServer_AFailureRunsAgain(t *testing.T) {
	for name, fail := range failures {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, wiring{}, failOnce(func() (*mcp.CallToolResult, error) { return fail(unmarked) }))
			res, err := s.call("7", "k", "a")
			if s.want("sold out", false, res, err); !res.IsError {
				t.Error("it is no error")
			}
			s.wantState(onlyonce.StateFailed)
			res, err = s.call("7", "k", "a")
			s.want("<a> 2", false, res, err)
		})
	}
	s := newShop(t, wiring{}, failOnce(func() (*mcp.CallToolResult, error) { return nil, &jsonrpc.Error{Code: 17, Message: "no"} }))
	if _, err := s.call("7", "k", "a"); err == nil {
		t.Error("the call succeeded")
	}
	s.wantState(onlyonce.StateFailed)
	res, err := s.call("7", "k", "a")
	s.want("<a> 2", false, res, err)
}

func TestServer_AFailureThatIsKeptIsReplayed(t *testing.T) {
	for name, fail := range failures {
		for how, w := range map[string]struct {
			guard onlyonce.Config
			mark  func(error) error
		}{
			"KeepFailures": {onlyonce.Config{KeepFailures: true}, unmarked},
			"Final":        {onlyonce.Config{}, onlyonce.Final},
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				s := newShop(t, wiring{guard: w.guard}, failOnce(func() (*mcp.CallToolResult, error) { return fail(w.mark) }))
				first, err := s.call("7", "k", "a")
				s.want("sold out", false, first, err)
				again, err := s.call("7", "k", "a")
				s.want("sold out", true, again, err)
				if first, again := asJSON(t, first), asJSON(t, again); first != again || !strings.Contains(again, `"isError":true`) {
					t.Errorf("the first result was %s, the replay is %s", first, again)
				}
				s.wantState(onlyonce.StateFailed)
				s.wantRuns(1)
			})
		}
	}
	s := newShop(t, wiring{guard: onlyonce.Config{KeepFailures: true}}, failOnce(func() (*mcp.CallToolResult, error) {
		return nil, &jsonrpc.Error{Code: 17, Message: "no", Data: json.RawMessage(`{"why":"closed"}`)}
	}))
	for range 2 {
		_, err := s.call("7", "k", "a")
		var got *jsonrpc.Error
		if !errors.As(err, &got) || got.Code != 17 || got.Message != "no" || string(got.Data) != `{"why":"closed"}` {
			t.Errorf("got %#v", got)
		}
	}
	s.wantRuns(1)
}

func TestServer_APanicAndAnUnknownErrorLeaveTheOutcomeUnknown(t *testing.T) {
	for name, do := range map[string]func() (*mcp.CallToolResult, error){
		"a panic":        func() (*mcp.CallToolResult, error) { panic("half done") },
		"an error":       func() (*mcp.CallToolResult, error) { return failures["an error"](onlyonce.Unknown) },
		"a result":       func() (*mcp.CallToolResult, error) { return failures["a result"](onlyonce.Unknown) },
		"no JSON at all": func() (*mcp.CallToolResult, error) { return &mcp.CallToolResult{StructuredContent: func() {}}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, wiring{guard: onlyonce.Config{HoldUnknown: true}}, failOnce(do))
			if res, err := s.call("7", "k", "a"); err == nil && !res.IsError {
				t.Error("the call succeeded")
			}
			s.wantState(onlyonce.StateUnknown)
			_, err := s.call("7", "k", "a")
			wantRejection(t, err, 409, "outcome_unknown", false)
			s.wantRuns(1)
		})
	}
}

func TestServer_APanicContinues(t *testing.T) {
	d := newDesk(t, onlyonce.Config{}, mcponce.Config{Tenant: mcponce.SingleTenant}, func(context.Context, *mcp.CallToolRequest) (mcp.Result, error) {
		panic("half done")
	})
	wantPanic(t, "half done", func() { _, _ = d.call(d.request("k", `{}`)) })
	rec, err := d.store.Lookup(t.Context(), onlyonce.ID{Tenant: "single", Operation: "tools/call charge", Key: "k"})
	if err != nil || rec.State != onlyonce.StateUnknown || rec.Error != "panic: half done" {
		t.Errorf("the record is %+v, %v", rec, err)
	}
}

func wantPanic(t *testing.T, part string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if text := fmt.Sprint(recover()); !strings.Contains(text, part) {
			t.Errorf("the panic is %s", text)
		}
	}()
	f()
}

func TestServer_ACallThatItsClientHasCanceledIsFinished(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	s := newShop(t, wiring{}, func(ctx context.Context, req *mcp.CallToolRequest, run int32, note string) (*mcp.CallToolResult, any, error) {
		leave()
		<-mcponce.ClientContext(ctx).Done() // the notification has arrived
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		return charged(ctx, req, run, note)
	})
	if _, err := s.session.CallTool(ctx, params("7", "k", "charge", "a")); !errors.Is(err, context.Canceled) {
		t.Errorf("the client got %v", err)
	}
	s.wantEvent(onlyonce.OutcomeExecuted)
	res, err := s.call("7", "k", "a")
	s.want("<a> 1", true, res, err)
	if ctx := t.Context(); mcponce.ClientContext(ctx) != ctx {
		t.Error("without a call, the client's context is another")
	}
}

func TestServer_ARepeatInAnotherSessionGetsTheFirstResult(t *testing.T) {
	s := newShop(t, wiring{}, charged)
	res, err := s.call("7", "k", "a")
	s.want("<a> 1", false, res, err)
	_ = s.session.Close()
	s.session = s.connect()
	res, err = s.call("7", "k", "a")
	s.want("<a> 1", true, res, err)
}

func TestServer_ToolsThatOnlyReadPassBy(t *testing.T) {
	s := newShop(t, wiring{once: mcponce.Config{Required: func(string) bool { return true }}}, charged)
	for _, key := range []string{"", "k", "k"} {
		if _, err := s.session.CallTool(t.Context(), params("7", key, "look", "a")); err != nil {
			t.Error(err)
		}
	}
	if n := s.looks.Load(); n != 3 {
		t.Errorf("%d looks", n)
	}
	// A tool that is added later, and one that a middleware hides, are protected.
	mcp.AddTool(s.server, &mcp.Tool{Name: "refund"}, func(context.Context, *mcp.CallToolRequest, note) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{}, nil, nil
	})
	for _, name := range []string{"refund", "unheard-of"} {
		_, err := s.session.CallTool(t.Context(), params("7", "", name, "a"))
		wantRejection(t, err, jsonrpc.CodeInvalidParams, "idempotency_key_missing", false)
	}
}

func TestServer_ProtectsChoosesTheTools(t *testing.T) {
	s := newShop(t, wiring{once: mcponce.Config{Protects: func(tool *mcp.Tool) bool { return tool.Name == "look" }}}, charged)
	for range 2 {
		if _, err := s.session.CallTool(t.Context(), params("7", "k", "look", "a")); err != nil {
			t.Error(err)
		}
		if _, err := s.call("7", "k", "a"); err != nil {
			t.Error(err)
		}
	}
	if s.wantRuns(2); s.looks.Load() != 1 {
		t.Errorf("%d looks", s.looks.Load())
	}
}

func TestServer_ToolsWhoseCallsNeedAKeyAreIdempotent(t *testing.T) {
	for required, want := range map[bool]string{true: "charge", false: ""} {
		s := newShop(t, wiring{once: mcponce.Config{Required: func(string) bool { return required }}}, charged)
		for range 2 { // the server's own tools do not change
			got := ""
			for listed, err := range s.session.Tools(t.Context(), nil) {
				if err != nil {
					t.Fatal(err)
				}
				if listed.Annotations != nil && listed.Annotations.IdempotentHint {
					got += listed.Name
				}
				if listed.Name == "look" && (listed.Annotations.Title != "Look" || !listed.Annotations.ReadOnlyHint) {
					t.Errorf("the annotations are %+v", listed.Annotations)
				}
			}
			if got != want {
				t.Errorf("required %v: %q has the hint", required, got)
			}
		}
	}
}

func TestServer_TheKeyAndTheOperationHaveOtherNames(t *testing.T) {
	s := newShop(t, wiring{once: mcponce.Config{
		MetaKey:   "com.example/key",
		Operation: func(_ context.Context, req *mcp.CallToolRequest) string { return "shop/" + req.Params.Name },
	}}, charged)
	for repeat := range 2 {
		p := params("7", "", "charge", "a")
		p.Meta["com.example/key"] = "k"
		res, err := s.session.CallTool(t.Context(), p)
		s.want("<a> 1", repeat > 0, res, err)
	}
	if _, err := s.store.Lookup(t.Context(), onlyonce.ID{Tenant: "7", Operation: "shop/charge", Key: "k"}); err != nil {
		t.Error(err)
	}
}

func TestServer_AReplaySendsNoProgress(t *testing.T) {
	progress := make(chan string, 10)
	s := newShop(t, wiring{client: &mcp.ClientOptions{ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
		progress <- req.Params.Message
	}}}, func(ctx context.Context, req *mcp.CallToolRequest, run int32, note string) (*mcp.CallToolResult, any, error) {
		if err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(), Message: fmt.Sprint("run ", run), Progress: 1}); err != nil {
			return nil, nil, err
		}
		return charged(ctx, req, run, note)
	})
	for i, key := range []string{"k", "k", "other"} {
		p := params("7", key, "charge", "a")
		p.SetProgressToken("token")
		if _, err := s.session.CallTool(t.Context(), p); err != nil {
			t.Errorf("call %d: %v", i, err)
		}
	}
	// Notifications arrive in order, so that of the third call is next if the second sent none.
	if first, second := <-progress, <-progress; first != "run 1" || second != "run 2" {
		t.Errorf("the progress is %q, %q", first, second)
	}
}

func TestServer_ARoundThatAsksForInputIsNotRecorded(t *testing.T) {
	d := newDesk(t, onlyonce.Config{}, mcponce.Config{Tenant: mcponce.SingleTenant}, func(_ context.Context, req *mcp.CallToolRequest) (mcp.Result, error) {
		if req.Params.InputResponses == nil {
			return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"sure": &mcp.ElicitParams{Message: "Sure?"}}}, nil
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "charged"}}}, nil
	})
	req := d.request("k", `{"note":"a"}`)
	for range 2 {
		res, err := d.call(req)
		if err != nil || res.(*mcp.CallToolResult).InputRequests == nil {
			t.Errorf("got %+v, %v", res, err)
		}
	}
	req.Params.InputResponses = mcp.InputResponseMap{"sure": &mcp.ElicitResult{Action: "accept"}}
	for repeat := range 2 {
		res, err := d.call(req)
		wantResult(t, "charged", repeat > 0, res.(*mcp.CallToolResult), err)
	}
	req.Params.InputResponses = nil // a client that begins again
	res, err := d.call(req)
	wantResult(t, "charged", true, res.(*mcp.CallToolResult), err)
	if d.runs != 3 {
		t.Errorf("%d runs", d.runs)
	}
}

func TestServer_AnAgentThatIsAskedForInputGetsOneEffect(t *testing.T) {
	asked := 0
	s := newShop(t, wiring{client: &mcp.ClientOptions{ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		asked++
		return &mcp.ElicitResult{Action: "accept"}, nil
	}}}, func(ctx context.Context, req *mcp.CallToolRequest, run int32, note string) (*mcp.CallToolResult, any, error) {
		if req.Params.InputResponses == nil {
			return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"sure": &mcp.ElicitParams{Message: "Sure?"}}}, nil, nil
		}
		return charged(ctx, req, run, note)
	})
	for repeat := range 2 {
		res, err := s.call("7", "k", "a")
		s.want("<a> 2", repeat > 0, res, err)
	}
	if s.wantRuns(2); asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

// settling is a store that returns another error of Settle once.
type settling struct {
	*adaptertest.Store
	fails func(onlyonce.Settlement) error
}

func (s settling) Settle(ctx context.Context, h onlyonce.Hold, end onlyonce.Settlement) error {
	if err := s.fails(end); err != nil {
		return err
	}
	return s.Store.Settle(ctx, h, end)
}

func TestServer_TheResultOfALostLeaseIsDropped(t *testing.T) {
	for name, do := range map[string]tool{"a result": charged, "a failure": failOnce(func() (*mcp.CallToolResult, error) { return failures["an error"](unmarked) })} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, wiring{store: func(store *adaptertest.Store) onlyonce.Store {
				return settling{store, func(onlyonce.Settlement) error { return onlyonce.ErrLost }}
			}}, do)
			_, err := s.call("7", "k", "a")
			wantRejection(t, err, 409, "request_in_progress", true)
		})
	}
}

func TestServer_AResultThatIsTooLargeArrivesAndItsCallDoesNotRunAgain(t *testing.T) {
	s := newShop(t, wiring{store: func(store *adaptertest.Store) onlyonce.Store {
		return settling{store, func(end onlyonce.Settlement) error {
			if len(end.Result.Body) > 0 {
				return onlyonce.ErrTooLarge
			}
			return nil
		}}
	}}, charged)
	res, err := s.call("7", "k", "a")
	s.want("<a> 1", false, res, err)
	res, err = s.call("7", "k", "a")
	s.want("The call was carried out before. Its result was not stored.", false, res, err)
	if res.Meta[mcponce.MetaReplayed] != "omitted" {
		t.Errorf("its _meta is %v", res.Meta)
	}
	s.wantRuns(1)
}

// garbling is a store whose results have another body.
type garbling struct {
	*adaptertest.Store
	body string
}

func (s garbling) Settle(ctx context.Context, h onlyonce.Hold, end onlyonce.Settlement) error {
	end.Result.Body = []byte(s.body)
	return s.Store.Settle(ctx, h, end)
}

func TestServer_TheNamesInARecordMayBeEscaped(t *testing.T) {
	body := `{"content":[],"\u005fmeta":{"trace":7}}`
	s := newShop(t, wiring{store: func(store *adaptertest.Store) onlyonce.Store { return garbling{store, body} }}, charged)
	if _, err := s.call("7", "k", "a"); err != nil {
		t.Fatal(err)
	}
	res, err := s.call("7", "k", "a")
	if err != nil {
		t.Fatal(err)
	}
	if res.Meta["trace"] == nil || res.Meta[mcponce.MetaReplayed] != true {
		t.Errorf("its _meta is %v", res.Meta)
	}
	s = newShop(t, wiring{guard: onlyonce.Config{KeepFailures: true}, store: func(store *adaptertest.Store) onlyonce.Store {
		return garbling{store, `{"err\u006fr":{"code":-32000,"message":"no"}}`}
	}}, charged)
	if _, err := s.call("7", "k", "a"); err != nil {
		t.Fatal(err)
	}
	if _, err = s.call("7", "k", "a"); err == nil || !strings.Contains(err.Error(), "no") {
		t.Errorf("got %v", err)
	}
}

func TestServer_TheMetaInARecordMayBeNull(t *testing.T) {
	body := `{"content":[{"type":"text","text":"a","_meta":null}],"_meta":null}`
	s := newShop(t, wiring{store: func(store *adaptertest.Store) onlyonce.Store { return garbling{store, body} }}, charged)
	if _, err := s.call("7", "k", "a"); err != nil {
		t.Fatal(err)
	}
	res, err := s.call("7", "k", "a")
	s.want("a", true, res, err)
}

func TestServer_AResultThatCannotBeReadHasAnUnknownOutcome(t *testing.T) {
	for name, body := range map[string]string{"no JSON": "{", "other content": `{"content":[{"type":"smell"}]}`} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, wiring{store: func(store *adaptertest.Store) onlyonce.Store { return garbling{store, body} }}, charged)
			res, err := s.call("7", "k", "a")
			s.want("<a> 1", false, res, err)
			_, err = s.call("7", "k", "a")
			wantRejection(t, err, 409, "outcome_unknown", false)
			for _, want := range []onlyonce.Outcome{onlyonce.OutcomeExecuted, onlyonce.OutcomeReplayed, onlyonce.OutcomeCorrupt} {
				s.wantEvent(want)
			}
			s.wantRuns(1)
		})
	}
}

// unrenewed is a store that cannot be reached while a tool runs.
type unrenewed struct{ *adaptertest.Store }

func (unrenewed) Renew(context.Context, onlyonce.Hold, time.Duration, map[string][]byte) error {
	return errors.New("no response")
}

func TestServer_AnErrorAfterTheLeaseWasLostLeavesTheOutcomeUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := adaptertest.NewStore()
		once := mcponce.Middleware(onlyonce.New(unrenewed{store}, onlyonce.Config{HoldUnknown: true, Observer: onlyonce.DiscardEvents}), mcponce.Config{Tenant: mcponce.SingleTenant})
		d := &desk{t: t, handle: once(func(ctx context.Context, method string, _ mcp.Request) (mcp.Result, error) {
			if method == "tools/list" {
				return &mcp.ListToolsResult{}, nil
			}
			<-ctx.Done()
			return nil, ctx.Err()
		})}
		if _, err := d.call(d.request("k", `{}`)); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		rec, err := store.Lookup(t.Context(), onlyonce.ID{Tenant: "single", Operation: "tools/call charge", Key: "k"})
		if err != nil || rec.State != onlyonce.StateUnknown {
			t.Errorf("the record is %+v, %v", rec, err)
		}
	})
}

func TestServer_ACallThatDoesNotRunBecauseOfTheObserverIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = 30 * time.Second
		d := newDesk(t, onlyonce.Config{Lease: lease, Observer: func(_ context.Context, e onlyonce.Event) {
			if e.Outcome == onlyonce.OutcomeTakenOver && e.Record.Attempt == 2 {
				time.Sleep(lease * 4 / 5)
			}
		}}, mcponce.Config{Tenant: mcponce.SingleTenant}, nil)
		_, err := d.store.Claim(t.Context(), onlyonce.Claim{
			ID: onlyonce.ID{Tenant: "single", Operation: "tools/call charge", Key: "k"}, Owner: "0123456789abcdef", SkipFingerprint: true, Lease: time.Second, Keep: time.Hour,
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if _, err := d.call(d.request("k", `{}`)); err == nil || d.runs != 0 {
			t.Errorf("got %v after %d runs", err, d.runs)
		}
		res, err := d.call(d.request("k", `{}`)) // does not have to wait for the rest of the lease
		if err != nil || d.runs != 1 {
			t.Fatalf("%v after %d runs", err, d.runs)
		}
		wantResult(t, "charged", false, res.(*mcp.CallToolResult), err)
	})
}

func TestServer_TwiceOnAServerItRunsAToolOnce(t *testing.T) {
	d := newDesk(t, onlyonce.Config{}, mcponce.Config{Tenant: mcponce.SingleTenant}, nil)
	d.handle = d.once(d.handle)
	for repeat := range 3 {
		res, err := d.call(d.request("k", `{}`))
		wantResult(t, "charged", repeat > 0, res.(*mcp.CallToolResult), err)
	}
	if d.runs != 1 {
		t.Errorf("%d runs", d.runs)
	}
}

func TestServer_AToolThatReturnsNothingLeavesTheOutcomeUnknown(t *testing.T) {
	d := newDesk(t, onlyonce.Config{HoldUnknown: true}, mcponce.Config{Tenant: mcponce.SingleTenant}, func(context.Context, *mcp.CallToolRequest) (mcp.Result, error) {
		return (*mcp.CallToolResult)(nil), nil
	})
	if res, err := d.call(d.request("k", `{}`)); res != nil || err == nil {
		t.Errorf("got %v, %v", res, err)
	}
	_, err := d.call(d.request("k", `{}`))
	wantRejection(t, err, 409, "outcome_unknown", false)
}

func TestMiddleware_AMistakenWiringIsRejected(t *testing.T) {
	guard := onlyonce.New(adaptertest.NewStore(), onlyonce.Config{})
	wantPanic(t, "Config.Tenant is nil", func() { mcponce.Middleware(guard, mcponce.Config{}) })
	wantPanic(t, "the Guard is nil", func() { mcponce.Middleware(nil, mcponce.Config{Tenant: mcponce.SingleTenant}) })
	wantPanic(t, "the TxGuard is nil", func() {
		mcponce.MiddlewareTx[adaptertest.Tx](nil, mcponce.Config{Tenant: mcponce.SingleTenant})
	})
	wantPanic(t, "Attempts is -1", func() { mcponce.ClientMiddleware(mcponce.ClientConfig{Attempts: -1}) })
	s := newShop(t, wiring{sending: []mcp.Middleware{mcponce.Middleware(guard, mcponce.Config{Tenant: mcponce.SingleTenant})}}, charged)
	if _, err := s.call("7", "k", "a"); err == nil || !strings.Contains(err.Error(), "Middleware is in a client") {
		t.Errorf("got %v", err)
	}
	s = newShop(t, wiring{}, charged)
	s.server.AddReceivingMiddleware(mcponce.ClientMiddleware(mcponce.ClientConfig{}))
	if _, err := s.call("7", "k", "a"); err == nil || !strings.Contains(err.Error(), "ClientMiddleware is in a server") {
		t.Errorf("got %v", err)
	}
	s.wantRuns(0)
}

// A desk calls the middleware itself, without a session.
type desk struct {
	t      testing.TB
	store  *adaptertest.Store
	tool   func(context.Context, *mcp.CallToolRequest) (mcp.Result, error)
	once   mcp.Middleware
	handle mcp.MethodHandler
	runs   int
}

func newDesk(t testing.TB, guard onlyonce.Config, cfg mcponce.Config, do func(context.Context, *mcp.CallToolRequest) (mcp.Result, error)) *desk {
	d := &desk{t: t, store: adaptertest.NewStore(), tool: do}
	if d.tool == nil {
		d.tool = func(context.Context, *mcp.CallToolRequest) (mcp.Result, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "charged"}}}, nil
		}
	}
	if guard.Observer == nil {
		guard.Observer = onlyonce.DiscardEvents
	}
	d.once = mcponce.Middleware(onlyonce.New(d.store, guard), cfg)
	d.handle = d.once(func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if method == "tools/list" {
			return &mcp.ListToolsResult{Tools: []*mcp.Tool{{Name: "charge"}}}, nil
		}
		d.runs++
		return d.tool(ctx, req.(*mcp.CallToolRequest))
	})
	return d
}

func (d *desk) request(key, arguments string) *mcp.CallToolRequest {
	return &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Meta: mcp.Meta{mcponce.MetaKey: key}, Name: "charge", Arguments: json.RawMessage(arguments)}}
}

func (d *desk) call(req *mcp.CallToolRequest) (mcp.Result, error) {
	return d.handle(d.t.Context(), "tools/call", req)
}
