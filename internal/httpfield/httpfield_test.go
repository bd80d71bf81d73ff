package httpfield_test

import (
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/internal/httpfield"
)

func TestIsToken_ReportsWhatCanBeTheNameOfAHeader(t *testing.T) {
	for s, want := range map[string]bool{
		"X-Key_1": true, "!#$%&'*+-.^_`|~": true, "0": true, "az": true, "AZ": true,
		"": false, "a b": false, "a:": false, "ä": false, "a\x00": false, "a/b": false, "a@": false, "[": false, "a{": false, `"a"`: false,
	} {
		if httpfield.IsToken(s) != want {
			t.Errorf("IsToken(%q) is %v", s, !want)
		}
	}
	for b := range 256 {
		if s := string([]byte{byte(b)}); httpfield.IsTokenByte(byte(b)) != httpfield.IsToken(s) {
			t.Errorf("IsTokenByte(%q) is not IsToken", s)
		}
	}
}

func TestIsUnambiguous_ReportsWhichNamesHaveNoOtherSpelling(t *testing.T) {
	for s, want := range map[string]bool{
		"X-Tenant": true, "x1": true, "-": true,
		"": false, "X_Tenant": false, "X.Tenant": false, "X Tenant": false, "X@": false, "X[": false, "X`": false, "X{": false, "Ä": false, "X\xc1": false,
	} {
		if httpfield.IsUnambiguous(s) != want {
			t.Errorf("IsUnambiguous(%q) is %v", s, !want)
		}
	}
}

func TestIsText_ReportsWhatCanBeTheValueOfAHeader(t *testing.T) {
	for s, want := range map[string]bool{"": true, "a\tb ä\x80": true, "a\r": false, "a\n": false, "\x00": false, "\x7f": false, "\x1f": false} {
		if httpfield.IsText(s) != want || httpfield.IsText([]byte(s)) != want {
			t.Errorf("IsText(%q) is %v", s, !want)
		}
	}
}

func TestOf_TheHeadersOfAConnectionAndOfAResponse(t *testing.T) {
	for _, name := range strings.Fields("Connection Keep-Alive Proxy-Connection Te Transfer-Encoding Upgrade") {
		if !httpfield.OfConnection(name) || httpfield.OfResponse(name) {
			t.Errorf("%s is not of a connection", name)
		}
	}
	for _, name := range []string{httpfield.Replayed, httpfield.Replay, httpfield.Expires, httpfield.Protected} {
		if httpfield.OfConnection(name) || !httpfield.OfResponse(name) {
			t.Errorf("%s is not of a response", name)
		}
	}
	for _, name := range []string{"", "Content-Type", "Idempotency-Key", httpfield.Attempt, httpfield.Fence} {
		if httpfield.OfConnection(name) || httpfield.OfResponse(name) {
			t.Errorf("%q is of a connection or of a response", name)
		}
	}
}

func TestIsType_ReportsAMediaTypeWithAnyParameters(t *testing.T) {
	for contentType, want := range map[string]bool{
		"text/event-stream": true, "Text/Event-Stream;charset=utf-8": true, "text/event-stream\t; charset=utf-8": true,
		"": false, "text/event-streams": false, "text/plain; text/event-stream": false,
	} {
		if got := httpfield.IsEventStream(contentType); got != want {
			t.Errorf("%q is an event stream: %v", contentType, got)
		}
	}
}

func TestIsGRPC_ReportsNoTypeThatOnlyBeginsWithTheSameText(t *testing.T) {
	for contentType, want := range map[string]bool{
		"application/grpc": true, "application/grpc+proto": true, "application/grpc;v=1": true,
		"": false, "application/grpc-web": false, "application/grpc-web+proto": false, "application/json": false,
	} {
		if got := httpfield.IsGRPC(contentType); got != want {
			t.Errorf("%q is gRPC: %v", contentType, got)
		}
	}
}

func TestDropDeadlines_LeavesAllOtherHeaders(t *testing.T) {
	h := map[string][]string{"Grpc-Timeout": {"1S"}, "Connect-Timeout-Ms": {"1000"}, "Grpc-Encoding": {"gzip"}}
	httpfield.DropDeadlines(h)
	if len(h) != 1 || h["Grpc-Encoding"] == nil {
		t.Errorf("%v is left", h)
	}
}

func TestOfOneExchange_ReportsWhatTellsTheTimeOrTheTrace(t *testing.T) {
	for name, want := range map[string]bool{"Date": true, "Traceparent": true, "X-B3-Traceid": true, "Grpc-Trace-Bin": true, "Content-Type": false, "X-B3": false, "Trace": false} {
		if got := httpfield.OfOneExchange(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
