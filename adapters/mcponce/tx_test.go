package mcponce_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/mcponce"
	"github.com/onlyonce-go/onlyonce/internal/adaptertest"
)

// ordered is a tool that writes a row and then does the rest.
func ordered(rest tool) tool {
	return func(ctx context.Context, req *mcp.CallToolRequest, run int32, note string) (*mcp.CallToolResult, any, error) {
		mcponce.Tx[adaptertest.Tx](ctx)["order"] = note
		return rest(ctx, req, run, note)
	}
}

func (s *shop) wantRow(want string) {
	s.t.Helper()
	if got := s.store.Row("order"); got != want {
		s.t.Errorf("the row is %q, want %q", got, want)
	}
}

func TestTx_RowsAndResultAreCommittedTogether(t *testing.T) {
	for name, twice := range map[string]bool{"at once": false, "after a serialization failure": true} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, wiring{tx: true}, ordered(func(context.Context, *mcp.CallToolRequest, int32, string) (*mcp.CallToolResult, any, error) {
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "ordered"}}}, nil, nil
			}))
			s.store.Twice = twice
			for repeat := range 2 {
				res, err := s.call("7", "k", "a")
				s.want("ordered", repeat > 0, res, err)
			}
			s.wantRow("a")
			s.wantState(onlyonce.StateCompleted)
			res, err := s.call("7", "", "b")
			s.want("ordered", false, res, err)
			s.wantRow("b")
		})
	}
}

func TestTx_AFailureRollsBack(t *testing.T) {
	for name, fail := range failures {
		for _, key := range []string{"k", ""} {
			t.Run(name+", key "+key, func(t *testing.T) {
				s := newShop(t, wiring{tx: true}, ordered(failOnce(func() (*mcp.CallToolResult, error) { return fail(unmarked) })))
				res, err := s.call("7", key, "a")
				if s.want("sold out", false, res, err); !res.IsError {
					t.Error("it is no error")
				}
				if s.wantRow(""); key != "" {
					s.wantState(onlyonce.StateFailed)
				}
				res, err = s.call("7", key, "a")
				s.want("<a> 2", false, res, err)
				s.wantRow("a")
			})
		}
	}
}

func TestTx_AFailureThatIsKeptIsReplayed(t *testing.T) {
	s := newShop(t, wiring{tx: true}, ordered(failOnce(func() (*mcp.CallToolResult, error) { return failures["a result"](onlyonce.Final) })))
	for repeat := range 2 {
		res, err := s.call("7", "k", "a")
		s.want("sold out", repeat > 0, res, err)
	}
	s.wantRow("")
	s.wantRuns(1)
}

func TestTx_ARoundThatAsksForInputRollsBack(t *testing.T) {
	s := newShop(t, wiring{tx: true, client: &mcp.ClientOptions{ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		return nil, errors.New("nobody is here")
	}}}, ordered(func(context.Context, *mcp.CallToolRequest, int32, string) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"sure": &mcp.ElicitParams{Message: "Sure?"}}}, nil, nil
	}))
	if res, err := s.call("7", "k", "a"); err == nil {
		t.Errorf("got %+v", res)
	}
	s.wantRow("")
}

func TestTx_AToolWithoutATransactionPanics(t *testing.T) {
	s := newShop(t, wiring{}, ordered(charged))
	_, err := s.call("7", "k", "a")
	if err == nil || !strings.Contains(err.Error(), "there is no transaction of type adaptertest.Tx") {
		t.Errorf("got %v", err)
	}
}

func TestTx_ACommitThatGetsNoResponseIsRepeatedWithItsKeyOnly(t *testing.T) {
	store := adaptertest.NewStore()
	store.Commit = onlyonce.ErrInDoubt
	once := mcponce.MiddlewareTx(onlyonce.NewTx(store, onlyonce.Config{Observer: onlyonce.DiscardEvents}), mcponce.Config{Tenant: mcponce.SingleTenant})
	handle := once(func(context.Context, string, mcp.Request) (mcp.Result, error) { return &mcp.CallToolResult{}, nil })
	for key, want := range map[string]struct {
		code  int64
		retry bool
	}{"k": {503, true}, "": {-32603, false}} {
		req := &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: "charge"}}
		if key != "" {
			req.Params.Meta = mcp.Meta{mcponce.MetaKey: key}
		}
		_, err := handle(t.Context(), "tools/call", req)
		wantRejection(t, err, want.code, "outcome_unknown", want.retry)
	}
}
