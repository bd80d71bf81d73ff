// Package serving is what every API does round its handlers.
package serving

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/onlyonce-go/onlyonce"
)

// Recovered makes an error of what recover returned, with the stack of the panic;
// nil if there was none. http.ErrAbortHandler goes on.
func Recovered(p any) error {
	switch p {
	case nil:
		return nil
	case http.ErrAbortHandler:
		panic(p)
	}
	return fmt.Errorf("panic: %v\n%s", p, debug.Stack())
}

// Observe tells the log, which shows of a key what showKey returns, and another
// Observer, if there is one.
func Observe(log *slog.Logger, showKey func(onlyonce.ID) string, other onlyonce.Observer) onlyonce.Observer {
	logs := onlyonce.SlogObserver(log, showKey)
	if other == nil {
		return logs
	}
	return func(ctx context.Context, e onlyonce.Event) {
		logs(ctx, e)
		other(ctx, e)
	}
}
