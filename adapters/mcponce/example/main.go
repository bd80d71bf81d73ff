// Example is a server of the Model Context Protocol. Its tool "charge" is idempotent:
//
//	go run ./adapters/mcponce/example
//	curl localhost:8080 -H 'Authorization: Bearer alice' -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' -d '{
//	    "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
//	        "name": "charge", "arguments": {"amount": 5},
//	        "_meta": {"io.github.onlyonce-go/idempotency-key": "8e03978e-40d5-43dd-bc93-6894a57f9324"}}}'
//
// With -stdio, it talks to the client that has started it. It keeps its records in memory. Use a
// store that survives a restart instead.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/mcponce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func main() {
	stdio := flag.Bool("stdio", false, "talk to the client over standard input and output")
	flag.Parse()
	guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{HoldUnknown: true})
	if *stdio {
		once := mcponce.Middleware(guard, mcponce.Config{Tenant: mcponce.SingleTenant, Required: always})
		log.Fatal(newServer(once).Run(context.Background(), &mcp.StdioTransport{}))
	}
	server := http.Server{Addr: "127.0.0.1:8080", Handler: newHandler(guard), ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(server.ListenAndServe())
}

// newHandler returns the server over HTTP, whose callers have tokens.
func newHandler(guard *onlyonce.Guard) http.Handler {
	server := newServer(mcponce.Middleware(guard, mcponce.Config{Tenant: mcponce.TokenUser, Required: always}))
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true})
	return auth.RequireBearerToken(verify, nil)(handler)
}

// verify stands for a function that verifies tokens.
func verify(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
	return &auth.TokenInfo{UserID: token, Expiration: time.Now().Add(time.Minute)}, nil
}

func always(string) bool { return true }

func newServer(once mcp.Middleware) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "shop", Version: "1"}, nil)
	server.AddReceivingMiddleware(once)
	mcp.AddTool(server, &mcp.Tool{Name: "charge", Description: "charges the caller's card"}, charge)
	mcp.AddTool(server, &mcp.Tool{Name: "count", Description: "counts the charges", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}, count)
	return server
}

type order struct {
	Amount int `json:"amount"`
}

type receipt struct {
	Charge int64 `json:"charge"`
	Amount int   `json:"amount"`
}

var charges atomic.Int64

func charge(_ context.Context, _ *mcp.CallToolRequest, o order) (*mcp.CallToolResult, receipt, error) {
	if o.Amount <= 0 {
		return nil, receipt{}, errors.New("amount must be positive")
	}
	return nil, receipt{charges.Add(1), o.Amount}, nil
}

func count(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, receipt, error) {
	return nil, receipt{Charge: charges.Load()}, nil
}
