package mcponce_test

import (
	"context"
	"encoding/json"
	"strconv"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/mcponce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// BenchmarkCall compares calls of a tool with what Do needs for the same: it hashes the arguments
// and stores the result.
func BenchmarkCall(b *testing.B) {
	result := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "charge 1 of 5"}}}
	arguments := json.RawMessage(`{"amount":5}`)
	guard := func() *onlyonce.Guard {
		return onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{Observer: onlyonce.DiscardEvents})
	}
	do := func(ctx context.Context, g *onlyonce.Guard, key string) error {
		fingerprint, err := onlyonce.FingerprintJSON(arguments)
		if err != nil {
			return err
		}
		_, err = onlyonce.Do(ctx, g, onlyonce.Request{ID: onlyonce.ID{Tenant: "single", Operation: "charge", Key: key}, Fingerprint: fingerprint}, func(context.Context) (*mcp.CallToolResult, error) {
			return result, nil
		})
		return err
	}
	for name, next := range map[string]func(i int) string{
		"run":    strconv.Itoa,
		"replay": func(int) string { return "k" },
	} {
		b.Run(name+"/Do", func(b *testing.B) {
			g := guard()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if err := do(b.Context(), g, next(i)); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/Middleware", func(b *testing.B) {
			d := newDesk(b, onlyonce.Config{}, mcponce.Config{Tenant: mcponce.SingleTenant}, func(context.Context, *mcp.CallToolRequest) (mcp.Result, error) { return result, nil })
			req := d.request("", string(arguments))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				req.Params.Meta[mcponce.MetaKey] = next(i)
				if _, err := d.call(req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
