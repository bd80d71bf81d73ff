package logging

import (
	"context"
	"log/slog"
	"net/http"
	"strings"

	"github.com/onlyonce-go/onlyonce"
)

// longestRequestID is how many bytes an X-Request-Id may have to be logged.
const longestRequestID = 128

// requestIDs are the attributes by which the log lines of a request can be found in other
// logs and in traces. An empty one is not logged.
type requestIDs struct{ requestID, traceparent string }

type requestIDsKey struct{}

// WithRequest returns a context of the request r: lines that a Logger writes with it, or
// with a context derived from it, have the attributes request_id and traceparent of r. A
// header that is missing, sent twice or not valid is left out.
func WithRequest(ctx context.Context, r *http.Request) context.Context {
	ids := requestIDs{single(r.Header["X-Request-Id"], isRequestID), single(r.Header["Traceparent"], isTraceparent)}
	if ids == (requestIDs{}) {
		return ctx
	}
	return context.WithValue(ctx, requestIDsKey{}, ids)
}

// single returns the only value of a header, if it is valid.
func single(values []string, valid func(string) bool) string {
	if len(values) != 1 || !valid(values[0]) {
		return ""
	}
	return values[0]
}

// isRequestID accepts visible ASCII, so that a client can neither fill the log with one
// line nor write to a terminal.
func isRequestID(id string) bool {
	return id != "" && len(id) <= longestRequestID && !strings.ContainsFunc(id, func(c rune) bool { return c <= ' ' || c > '~' })
}

// isTraceparent accepts version 00 of W3C Trace Context, which is the only one.
func isTraceparent(text string) bool {
	parts := strings.Split(text, "-")
	if len(parts) != 4 || parts[0] != "00" || len(parts[1]) != 32 || len(parts[2]) != 16 || len(parts[3]) != 2 {
		return false
	}
	for _, part := range parts {
		if strings.Trim(part, "0123456789abcdef") != "" {
			return false
		}
	}
	return strings.Trim(parts[1], "0") != "" && strings.Trim(parts[2], "0") != ""
}

// A requestHandler adds the attributes of WithRequest to each line.
type requestHandler struct{ slog.Handler }

func (h requestHandler) Handle(ctx context.Context, r slog.Record) error {
	if ids, ok := ctx.Value(requestIDsKey{}).(requestIDs); ok {
		r = r.Clone()
		if ids.requestID != "" {
			r.AddAttrs(slog.String("request_id", ids.requestID))
		}
		if ids.traceparent != "" {
			r.AddAttrs(slog.String("traceparent", ids.traceparent))
		}
	}
	return h.Handler.Handle(ctx, r)
}

func (h requestHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return requestHandler{h.Handler.WithAttrs(attrs)}
}

func (h requestHandler) WithGroup(name string) slog.Handler {
	return requestHandler{h.Handler.WithGroup(name)}
}

// RecordID returns the id of a command's record as onlyonce.SlogObserver logs it, and as
// onlyonce records accepts it.
func RecordID(id onlyonce.ID) string {
	return id.HexHash()[:16]
}
