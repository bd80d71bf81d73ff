package mcponce_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/mcponce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// asChild makes the program of the tests a server over standard input and output.
const asChild = "MCPONCE_TEST_STDIO"

func TestMain(m *testing.M) {
	if os.Getenv(asChild) == "" {
		os.Exit(m.Run())
	}
	k := newKiosk(mcponce.SingleTenant)
	if err := k.server.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A kiosk is a server whose state only its tools show, so that it may be another process.
type kiosk struct {
	server        *mcp.Server
	runs          atomic.Int32
	running, goOn chan struct{}
	ended         chan onlyonce.Outcome
}

// newKiosk returns a server with these tools. Those that only read have readOnlyHint.
//   - charge: {"note": "slow"} waits for go_on, "panic" panics, and others charge
//   - runs: returns how often charge has run
//   - running: waits until a slow charge runs
//   - go_on: lets a slow charge go on
//   - ended: waits until a command has ended, and returns its outcome
func newKiosk(tenant func(context.Context, *mcp.CallToolRequest) string) *kiosk {
	k := &kiosk{running: make(chan struct{}, 1), goOn: make(chan struct{}, 1), ended: make(chan onlyonce.Outcome, 100)}
	guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{HoldUnknown: true, Observer: func(_ context.Context, e onlyonce.Event) { k.ended <- e.Outcome }})
	k.server = mcp.NewServer(&mcp.Implementation{Name: "kiosk", Version: "1"}, nil)
	k.server.AddReceivingMiddleware(recovering, mcponce.Middleware(guard, mcponce.Config{Tenant: tenant, Required: func(string) bool { return true }}))
	mcp.AddTool(k.server, &mcp.Tool{Name: "charge"}, func(ctx context.Context, req *mcp.CallToolRequest, in note) (*mcp.CallToolResult, any, error) {
		run := k.runs.Add(1)
		switch in.Note {
		case "slow":
			k.running <- struct{}{}
			<-k.goOn
		case "panic":
			panic("half done")
		}
		return charged(ctx, req, run, in.Note)
	})
	reads := func(name string, read func(ctx context.Context) string) {
		mcp.AddTool(k.server, &mcp.Tool{Name: name, Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}, func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: read(ctx)}}}, nil, nil
		})
	}
	reads("runs", func(context.Context) string { return fmt.Sprint(k.runs.Load()) })
	reads("running", func(context.Context) string { <-k.running; return "" })
	reads("go_on", func(context.Context) string { k.goOn <- struct{}{}; return "" })
	reads("ended", func(context.Context) string { return string(<-k.ended) })
	return k
}

// A place opens sessions with a kiosk.
type place struct {
	t      *testing.T
	client *mcp.Client
	dial   func() mcp.Transport
}

// open opens a session until the end of the test. user is who calls, if the transport has users.
func (p *place) open() *mcp.ClientSession {
	p.t.Helper()
	session, err := p.client.Connect(p.t.Context(), p.dial(), nil)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = session.Close() })
	return session
}

func newClient() *mcp.Client {
	return mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
}

// overStdio returns a place whose kiosk is a child process, one for each session.
func overStdio(t *testing.T) *place {
	return &place{t: t, client: newClient(), dial: func() mcp.Transport {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), asChild+"=1")
		cmd.Stderr = os.Stderr
		return &mcp.CommandTransport{Command: cmd}
	}}
}

// bearer is a client of HTTP with a token.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// overHTTP returns the places of two users at a kiosk over streamable HTTP.
func overHTTP(t *testing.T, options *mcp.StreamableHTTPOptions) (server *httptest.Server, alice, bob *place) {
	k := newKiosk(mcponce.TokenUser)
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return k.server }, options)
	server = httptest.NewServer(auth.RequireBearerToken(func(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
		return &auth.TokenInfo{UserID: token, Expiration: time.Now().Add(time.Hour)}, nil
	}, nil)(handler))
	t.Cleanup(server.Close)
	at := func(user bearer) *place {
		return &place{t: t, client: newClient(), dial: func() mcp.Transport {
			return &mcp.StreamableClientTransport{Endpoint: server.URL, HTTPClient: &http.Client{Transport: user}, MaxRetries: -1}
		}}
	}
	return server, at("alice"), at("bob")
}

// everywhere runs a test over each transport.
func everywhere(t *testing.T, test func(t *testing.T, p *place)) {
	t.Run("stdio", func(t *testing.T) { test(t, overStdio(t)) })
	for name, options := range map[string]*mcp.StreamableHTTPOptions{"HTTP": nil, "HTTP without sessions": {Stateless: true, JSONResponse: true}} {
		t.Run(name, func(t *testing.T) {
			_, alice, _ := overHTTP(t, options)
			test(t, alice)
		})
	}
}

func charge(t *testing.T, session *mcp.ClientSession, key, text string) (*mcp.CallToolResult, error) {
	t.Helper()
	return session.CallTool(t.Context(), params("", key, "charge", text))
}

// read calls a tool that only reads.
func read(t *testing.T, session *mcp.ClientSession, name string) string {
	t.Helper()
	res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: name})
	if err != nil {
		t.Error(err)
	}
	text, _ := textOf(res)
	return text
}

func TestTransport_ThreeCallsHaveOneEffect(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		session := p.open()
		first := ""
		for repeat := range 3 {
			res, err := charge(t, session, "k", "a")
			wantResult(t, "<a> 1", repeat > 0, res, err)
			if got := asJSON(t, res); repeat == 0 {
				first = got
			} else if got != first {
				t.Errorf("the first result was %s, the replay is %s", first, got)
			}
		}
		_, err := charge(t, session, "k", "b")
		wantRejection(t, err, jsonrpc.CodeInvalidParams, httponce.CodeKeyReused, false)
		_, err = charge(t, session, "", "a")
		wantRejection(t, err, jsonrpc.CodeInvalidParams, httponce.CodeKeyMissing, false)
		if runs := read(t, session, "runs"); runs != "1" {
			t.Errorf("%s runs", runs)
		}
		hints := map[string]bool{}
		for tool, err := range session.Tools(t.Context(), nil) {
			if err != nil {
				t.Fatal(err)
			}
			hints[tool.Name] = tool.Annotations != nil && tool.Annotations.IdempotentHint
		}
		if len(hints) != 5 || !hints["charge"] || hints["runs"] {
			t.Errorf("the tools with the hint are %v", hints)
		}
	})
}

func TestTransport_ADuplicateOfARunningCallIsRejected(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		session := p.open()
		var ended sync.WaitGroup
		ended.Go(func() {
			res, err := charge(t, session, "k", "slow")
			wantResult(t, "<slow> 1", false, res, err)
		})
		read(t, session, "running")
		_, err := charge(t, session, "k", "slow")
		wantRejection(t, err, 409, httponce.CodeInProgress, true)
		read(t, session, "go_on")
		ended.Wait()
		res, err := charge(t, session, "k", "slow")
		wantResult(t, "<slow> 1", true, res, err)
	})
}

func TestTransport_APanicLeavesTheOutcomeUnknown(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		session := p.open()
		if res, err := charge(t, session, "k", "panic"); err == nil {
			t.Errorf("got %+v", res)
		}
		_, err := charge(t, session, "k", "panic")
		wantRejection(t, err, 409, httponce.CodeOutcomeUnknown, false)
		if runs := read(t, session, "runs"); runs != "1" {
			t.Errorf("%s runs", runs)
		}
	})
}

func TestTransport_ACallWhoseConnectionWasCutHasOneEffect(t *testing.T) {
	server, alice, _ := overHTTP(t, nil)
	alice.client.AddSendingMiddleware(mcponce.ClientMiddleware(mcponce.ClientConfig{Attempts: 1}))
	session, other := alice.open(), alice.open()
	failed := make(chan error, 1)
	go func() {
		_, err := charge(t, session, "", "slow")
		failed <- err
	}()
	read(t, other, "running")
	server.CloseClientConnections()
	var lost *httponce.NoResponseError
	if err := <-failed; !errors.As(err, &lost) {
		t.Fatalf("got %v", err)
	}
	session = alice.open()
	_, err := charge(t, session, lost.Key, "slow")
	wantRejection(t, err, 409, httponce.CodeInProgress, true)
	read(t, session, "go_on")
	for _, want := range []onlyonce.Outcome{onlyonce.OutcomeInFlight, onlyonce.OutcomeExecuted} {
		if got := read(t, session, "ended"); got != string(want) {
			t.Errorf("a command ended as %s, want %s", got, want)
		}
	}
	res, err := charge(t, session, lost.Key, "slow")
	wantResult(t, "<slow> 1", true, res, err)
}

// cutting is a client of HTTP that loses the response to the first call of a tool, after it has
// arrived.
type cutting struct {
	http.RoundTripper
	cut atomic.Bool
}

func (c *cutting) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.RoundTripper.RoundTrip(r)
	if err != nil || r.Header.Get("Mcp-Method") != "tools/call" || c.cut.Swap(true) {
		return resp, err
	}
	_ = resp.Body.Close()
	return nil, errors.New("the connection was cut")
}

func TestTransport_TheClientRepeatsACallWhoseResponseWasLost(t *testing.T) {
	_, alice, _ := overHTTP(t, &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true})
	alice.client.AddSendingMiddleware(retrying(mcponce.ClientConfig{}))
	dial := alice.dial
	alice.dial = func() mcp.Transport {
		transport := dial().(*mcp.StreamableClientTransport)
		transport.HTTPClient.Transport = &cutting{RoundTripper: transport.HTTPClient.Transport}
		return transport
	}
	session := alice.open()
	res, err := charge(t, session, "", "a")
	wantResult(t, "<a> 1", true, res, err)
	if runs := read(t, session, "runs"); runs != "1" {
		t.Errorf("%s runs", runs)
	}
}

func TestTransport_UsersDoNotSeeTheResultsOfOthers(t *testing.T) {
	_, alice, bob := overHTTP(t, nil)
	for run, p := range []*place{alice, bob} {
		res, err := charge(t, p.open(), "k", "a")
		wantResult(t, fmt.Sprint("<a> ", 1+run), false, res, err)
	}
}

func TestTransport_ACallerWithoutATokenIsRejected(t *testing.T) {
	p := overStdio(t)
	k := newKiosk(mcponce.TokenUser)
	here, there := mcp.NewInMemoryTransports()
	if _, err := k.server.Connect(t.Context(), there, nil); err != nil {
		t.Fatal(err)
	}
	p.dial = func() mcp.Transport { return here }
	_, err := charge(t, p.open(), "k", "a")
	wantRejection(t, err, 401, httponce.CodeTenantMissing, false)
}
