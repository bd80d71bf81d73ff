package integration

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/mcponce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// With these variables, the program of the tests is a server of the Model Context Protocol that
// talks over standard input and output.
const (
	mcpDatabase = "ONLYONCE_TEST_MCP_DATABASE" // its SQLite database, which has the table "orders"
	mcpDies     = "ONLYONCE_TEST_MCP_DIES"     // when it kills itself: "running" or "responding"
)

type mcpOrder struct {
	Item string `json:"item"`
}

// serveMCP serves one session. Its tool "order" adds a row.
func serveMCP(ctx context.Context, file, dies string) error {
	db, err := sql.Open("sqlite", sqliteDSN(file))
	if err != nil {
		return err
	}
	store, err := sqlstore.Open(ctx, db, sqlstore.Config{PurgeEvery: sqlstore.NeverPurge})
	if err != nil {
		return err
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "shop", Version: "1"}, nil)
	guard := onlyonce.New(store, onlyonce.Config{HoldUnknown: true, Observer: onlyonce.DiscardEvents})
	server.AddReceivingMiddleware(mcponce.Middleware(guard, mcponce.Config{Tenant: mcponce.SingleTenant}))
	mcp.AddTool(server, &mcp.Tool{Name: "order"}, func(ctx context.Context, _ *mcp.CallToolRequest, in mcpOrder) (*mcp.CallToolResult, mcpOrder, error) {
		if _, err := db.ExecContext(ctx, "INSERT INTO orders (item) VALUES (?)", in.Item); err != nil {
			return nil, in, err
		}
		if dies == "running" {
			panic("the process dies")
		}
		return nil, in, nil
	})
	transport := &mcp.IOTransport{Reader: os.Stdin, Writer: os.Stdout}
	if dies == "responding" {
		transport.Writer = dyingWriter{os.Stdout}
	}
	return server.Run(ctx, transport)
}

// A dyingWriter kills its process instead of writing the result of the tool.
type dyingWriter struct{ io.WriteCloser }

func (w dyingWriter) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(`"structuredContent"`)) {
		self, err := os.FindProcess(os.Getpid())
		if err != nil {
			return 0, err
		}
		if err := self.Kill(); err != nil {
			return 0, err
		}
		select {}
	}
	return w.WriteCloser.Write(p)
}

func TestMCP_ACallWhoseServerHasDiedHasOneEffect(t *testing.T) {
	for dies, outcome := range map[string]string{"running": httponce.CodeOutcomeUnknown, "responding": ""} {
		t.Run(dies, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "records.db")
			_, db := openSQLite(t, file)
			if _, err := db.Exec("CREATE TABLE orders (item TEXT NOT NULL) STRICT"); err != nil {
				t.Fatal(err)
			}
			client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
			client.AddSendingMiddleware(mcponce.ClientMiddleware(mcponce.ClientConfig{Attempts: 1}))
			var log bytes.Buffer
			order := func(dies, key string) (*mcp.CallToolResult, error) {
				cmd := exec.Command(os.Args[0])
				cmd.Env = append(os.Environ(), mcpDatabase+"="+file, mcpDies+"="+dies)
				cmd.Stderr = &log // that of a panic
				session, err := client.Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
				if err != nil {
					t.Fatalf("%v\n%s", err, &log)
				}
				defer session.Close()
				params := &mcp.CallToolParams{Name: "order", Arguments: mcpOrder{"a lamp"}}
				if key != "" {
					params.Meta = mcp.Meta{mcponce.MetaKey: key}
				}
				return session.CallTool(t.Context(), params)
			}
			_, err := order(dies, "")
			var lost *httponce.NoResponseError
			if !errors.As(err, &lost) {
				t.Fatalf("the first call got %v", err)
			}
			res, err := order("", lost.Key)
			var rejected *jsonrpc.Error
			switch {
			case outcome == "" && (err != nil || res.Meta[mcponce.MetaReplayed] != true):
				t.Errorf("the repeat got %+v, %v\n%s", res, err, &log)
			case outcome != "" && (!errors.As(err, &rejected) || !bytes.Contains(rejected.Data, []byte(outcome))):
				t.Errorf("the repeat got %+v, %v\n%s", res, err, &log)
			}
			var orders int
			if err := db.QueryRow("SELECT count(*) FROM orders").Scan(&orders); err != nil || orders != 1 {
				t.Errorf("%d orders, %v", orders, err)
			}
		})
	}
}
