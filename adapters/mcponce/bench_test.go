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

// compared returns a call of a tool with a key, and Do with what a call needs of it: it hashes the arguments
// and stores the result.
func compared(tb testing.TB) (middleware, do func(key string)) {
	result := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "charge 1 of 5"}}}
	arguments := json.RawMessage(`{"amount":5}`)
	d := newDesk(tb, onlyonce.Config{}, mcponce.Config{Tenant: mcponce.SingleTenant}, func(context.Context, *mcp.CallToolRequest) (mcp.Result, error) { return result, nil })
	req := d.request("", string(arguments))
	middleware = func(key string) {
		req.Params.Meta[mcponce.MetaKey] = key
		if _, err := d.call(req); err != nil {
			tb.Fatal(err)
		}
	}
	g := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{Observer: onlyonce.DiscardEvents})
	return middleware, func(key string) {
		fingerprint, err := onlyonce.FingerprintJSON(arguments)
		if err != nil {
			tb.Fatal(err)
		}
		_, err = onlyonce.Do(tb.Context(), g, onlyonce.Request{ID: onlyonce.ID{Tenant: "single", Operation: "charge", Key: key}, Fingerprint: fingerprint}, func(context.Context) (*mcp.CallToolResult, error) {
			return result, nil
		})
		if err != nil {
			tb.Fatal(err)
		}
	}
}

func BenchmarkCall(b *testing.B) {
	for name, key := range map[string]func(i int) string{"run": strconv.Itoa, "replay": func(int) string { return "k" }} {
		middleware, do := compared(b)
		for of, call := range map[string]func(key string){"/Do": do, "/Middleware": middleware} {
			b.Run(name+of, func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					call(key(i))
				}
			})
		}
	}
}
