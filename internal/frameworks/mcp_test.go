package frameworks_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/mcponce"
)

type order struct {
	Amount int `json:"amount"`
}

func mcpHandler(guard *onlyonce.Guard, verify auth.TokenVerifier, charge mcp.ToolHandlerFor[order, any]) http.Handler {
	once := mcponce.Middleware(guard, mcponce.Config{
		Tenant:   mcponce.TokenUser, // the UserID that verify returns
		Required: func(tool string) bool { return tool == "charge" },
	})
	server := mcp.NewServer(&mcp.Implementation{Name: "shop", Version: "1"}, nil)
	server.AddReceivingMiddleware(once)
	mcp.AddTool(server, &mcp.Tool{Name: "charge"}, charge)
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	return auth.RequireBearerToken(verify, nil)(handler)
}

func mcpClient() *mcp.Client {
	client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
	client.AddSendingMiddleware(mcponce.ClientMiddleware(mcponce.ClientConfig{}))
	return client
}

// authorized sends requests with a token.
type authorized struct{}

func (authorized) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer token")
	return http.DefaultTransport.RoundTrip(r)
}

func TestMCP_ARepeatGetsTheFirstResult(t *testing.T) {
	s := newShop()
	server := httptest.NewServer(mcpHandler(s.guard, func(context.Context, string, *http.Request) (*auth.TokenInfo, error) {
		return &auth.TokenInfo{UserID: "acme", Expiration: time.Now().Add(time.Hour)}, nil
	}, func(context.Context, *mcp.CallToolRequest, order) (*mcp.CallToolResult, any, error) {
		made, err := s.run(nil)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: made}}}, nil, err
	}))
	defer server.Close()
	session, err := mcpClient().Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: server.URL, HTTPClient: &http.Client{Transport: authorized{}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	for i, want := range []string{`{"charge":1}`, `{"charge":1}`, `{"charge":2}`} {
		params := &mcp.CallToolParams{Name: "charge", Arguments: order{5}}
		if i < 2 { // the client makes the key of the last one
			params.Meta = mcp.Meta{mcponce.MetaKey: "k"}
		}
		res, err := session.CallTool(t.Context(), params)
		if err != nil || len(res.Content) != 1 || res.Content[0].(*mcp.TextContent).Text != want {
			t.Errorf("call %d got %+v, %v", i, res, err)
		}
	}
	if s.record(t, "tools/call charge").State != onlyonce.StateCompleted {
		t.Error("the record is not completed")
	}
}
