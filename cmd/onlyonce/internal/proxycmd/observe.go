package proxycmd

import (
	"context"
	"log/slog"
	"strings"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/promonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/proxyfile"
)

// operationsOf returns the operations that the settings name. All others are method and
// path of requests that match no route, which clients choose.
func operationsOf(f *proxyfile.File) *map[string]bool {
	known := make(map[string]bool)
	add := func(s *proxyfile.Settings, match string) {
		if s.Operation != "" {
			known[s.Operation] = true
			return
		}
		if _, _, both := strings.Cut(match, " "); both {
			known[match] = true
			return
		}
		for _, method := range s.Methods {
			known[method+" "+match] = true
		}
	}
	for i := range f.Routes {
		add(&f.Routes[i].Settings, f.Routes[i].Match)
	}
	if f.Defaults.Operation != "" {
		known[f.Defaults.Operation] = true
	}
	return &known
}

// shown returns the part of an operation that the log and the metrics may show, and
// whether that is all of it.
func (b *routeBuilder) shown(operation string) (string, bool) {
	if known := b.operations.Load(); known != nil && (*known)[operation] {
		return operation, true
	}
	method, _, _ := strings.Cut(operation, " ")
	return method + " (no route)", false
}

// count counts and traces an event. Operations that the settings do not name are one.
func (b *routeBuilder) count(ctx context.Context, e onlyonce.Event) {
	if _, known := b.shown(e.Record.ID.Operation); !known {
		e.Record.ID.Operation = promonce.Other
	}
	b.metrics.keys.Observe(ctx, e)
	b.tracing.Observe(ctx, e)
}

// A routeLog logs the operations that the settings name, and of others only the
// method: a path can hold a token.
type routeLog struct {
	slog.Handler
	shown func(string) (string, bool)
}

func (l routeLog) Handle(ctx context.Context, r slog.Record) error {
	clean := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "operation" {
			text, _ := l.shown(a.Value.String())
			a.Value = slog.StringValue(text)
		}
		clean.AddAttrs(a)
		return true
	})
	return l.Handler.Handle(ctx, clean)
}
