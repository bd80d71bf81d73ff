package otelonce

import (
	"context"
	"encoding/hex"

	"go.opentelemetry.io/otel/trace"
)

// Traceparent returns the span of ctx in the form of a traceparent header (W3C Trace Context),
// or "" if there is none or it is not sampled. It is for onlyonce.Config.Traceparent.
func Traceparent(ctx context.Context) string {
	span := trace.SpanContextFromContext(ctx)
	if !span.IsValid() || !span.IsSampled() {
		return ""
	}
	traceID, spanID := span.TraceID(), span.SpanID()
	b := append(make([]byte, 0, 55), "00-"...)
	b = append(hex.AppendEncode(b, traceID[:]), '-')
	b = append(hex.AppendEncode(b, spanID[:]), "-01"...)
	return string(b)
}

// parse returns the span of a traceparent, which is not valid if the text is not.
func parse(text string) trace.SpanContext {
	if len(text) != 55 {
		return trace.SpanContext{}
	}
	var flags [1]byte
	traceID, err := trace.TraceIDFromHex(text[3:35])
	if err != nil {
		return trace.SpanContext{}
	}
	spanID, err := trace.SpanIDFromHex(text[36:52])
	if err != nil {
		return trace.SpanContext{}
	}
	if _, err := hex.Decode(flags[:], []byte(text[53:])); err != nil {
		return trace.SpanContext{}
	}
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: traceID, SpanID: spanID, TraceFlags: trace.TraceFlags(flags[0]), Remote: true})
}
