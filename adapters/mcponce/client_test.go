package mcponce_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/mcponce"
	"github.com/onlyonce-go/onlyonce/httponce"
)

// losing is a middleware of a client that loses the first n responses.
func losing(n int32) mcp.Middleware {
	var calls atomic.Int32
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			res, err := next(ctx, method, req)
			if method != "tools/call" || calls.Add(1) > n {
				return res, err
			}
			return nil, fmt.Errorf("calling %q: %w", method, io.ErrUnexpectedEOF)
		}
	}
}

func retrying(cfg mcponce.ClientConfig) mcp.Middleware {
	cfg.Wait = time.Millisecond
	return mcponce.ClientMiddleware(cfg)
}

func TestClient_RetriesWithTheSameKeyUntilThereIsAResponse(t *testing.T) {
	s := newShop(t, wiring{sending: []mcp.Middleware{retrying(mcponce.ClientConfig{}), losing(2)}}, charged)
	p := params("7", "", "charge", "a")
	res, err := s.session.CallTool(t.Context(), p)
	s.want("<a> 1", true, res, err)
	s.wantRuns(1)
	// The parameters have no key, so that they can be used for another call.
	res, err = s.session.CallTool(t.Context(), p)
	s.want("<a> 2", false, res, err)
}

func TestClient_RetriesWhenTheServerSaysSo(t *testing.T) {
	var rejected atomic.Bool
	busy := func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if method == "tools/call" && !rejected.Swap(true) {
				return nil, &jsonrpc.Error{Code: 409, Message: "busy", Data: []byte(`{"code":"request_in_progress","retryable":true}`)}
			}
			return next(ctx, method, req)
		}
	}
	s := newShop(t, wiring{sending: []mcp.Middleware{retrying(mcponce.ClientConfig{})}}, charged)
	s.server.AddReceivingMiddleware(busy)
	res, err := s.call("7", "", "a")
	s.want("<a> 1", false, res, err)
}

func TestClient_GivesUpWithTheKeyAfterItsAttempts(t *testing.T) {
	s := newShop(t, wiring{sending: []mcp.Middleware{retrying(mcponce.ClientConfig{Attempts: 2}), losing(2)}}, charged)
	_, err := s.call("7", "", "a")
	var lost *httponce.NoResponseError
	if !errors.As(err, &lost) || lost.Attempts != 2 || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("got %v", err)
	}
	res, err := s.call("7", lost.Key, "a")
	s.want("<a> 1", true, res, err)
}

func TestClient_RetriesNoOtherError(t *testing.T) {
	s := newShop(t, wiring{sending: []mcp.Middleware{retrying(mcponce.ClientConfig{})}}, func(_ context.Context, _ *mcp.CallToolRequest, _ int32, note string) (*mcp.CallToolResult, any, error) {
		if note == "protocol" {
			return nil, nil, &jsonrpc.Error{Code: 17, Message: "no", Data: []byte(`"text"`)}
		}
		return nil, nil, errors.New("sold out")
	})
	res, err := s.call("7", "", "a")
	s.want("sold out", false, res, err)
	var response *jsonrpc.Error
	if _, err = s.call("7", "", "protocol"); !errors.As(err, &response) || response.Code != 17 {
		t.Errorf("got %v", err)
	}
	_ = s.session.Close()
	var lost *httponce.NoResponseError
	if _, err := s.call("7", "k", "a"); !errors.As(err, &lost) || lost.Key != "k" || lost.Attempts != 1 || !errors.Is(err, mcp.ErrConnectionClosed) {
		t.Errorf("got %v", err)
	}
	s.wantRuns(2)
}

func TestClient_AsksForInputOnceIfNobodyAnswers(t *testing.T) {
	asked := 0
	s := newShop(t, wiring{sending: []mcp.Middleware{retrying(mcponce.ClientConfig{})}, client: &mcp.ClientOptions{ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		asked++
		return nil, errors.New("nobody is here")
	}}}, func(context.Context, *mcp.CallToolRequest, int32, string) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"sure": &mcp.ElicitParams{Message: "Sure?"}}}, nil, nil
	})
	if res, err := s.call("7", "", "a"); err == nil {
		t.Errorf("got %+v", res)
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

func TestClient_GivesNoKeyToOtherTools(t *testing.T) {
	always := func(string) bool { return true }
	s := newShop(t, wiring{once: mcponce.Config{Required: always}, sending: []mcp.Middleware{retrying(mcponce.ClientConfig{Protects: func(string) bool { return false }})}}, charged)
	_, err := s.call("7", "", "a")
	wantRejection(t, err, jsonrpc.CodeInvalidParams, "idempotency_key_missing", false)
}

func TestClient_StopsWhenItsContextEnds(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	s := newShop(t, wiring{guard: onlyonce.Config{}, sending: []mcp.Middleware{mcponce.ClientMiddleware(mcponce.ClientConfig{Wait: time.Hour}), losing(1), func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			res, err := next(ctx, method, req)
			if method == "tools/call" {
				leave()
			}
			return res, err
		}
	}}}, charged)
	var lost *httponce.NoResponseError
	if _, err := s.session.CallTool(ctx, params("7", "", "charge", "a")); !errors.As(err, &lost) || lost.Attempts != 1 {
		t.Errorf("got %v", err)
	}
}
