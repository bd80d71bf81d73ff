package onlyonce

import (
	"context"
	"strings"
)

// traceparent returns the trace context of a request that the record is to keep.
func (g *Guard) traceparent(ctx context.Context) string {
	if g.cfg.Traceparent == nil {
		return ""
	}
	if text := g.cfg.Traceparent(ctx); isTraceparent(text) {
		return text
	}
	return ""
}

// isTraceparent accepts version 00 of a traceparent, with a trace and a span that are not
// zero.
func isTraceparent(text string) bool {
	const zero, hex = "0", "0123456789abcdef-"
	return len(text) == 55 && text[:3] == "00-" && text[35] == '-' && text[52] == '-' && strings.Count(text, "-") == 3 &&
		strings.Trim(text, hex) == "" && strings.Trim(text[3:35], zero) != "" && strings.Trim(text[36:52], zero) != ""
}
