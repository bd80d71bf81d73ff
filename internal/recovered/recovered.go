// Package recovered calls functions of a program's author, such as handlers and publishers, so that
// neither their panics nor runtime.Goexit end what calls them.
package recovered

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
)

// A panicked is the error of a function that panicked.
type panicked struct {
	who   string
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("%s panicked: %v", p.who, p.value) }

// Log logs an error of Call with slog.Default() if it is a panic, with its stack, and no other error. The
// package that called the function begins the message, and the attributes, as those of slog.Log, say what
// it was called for.
func Log(ctx context.Context, err error, pkg string, attributes ...any) {
	p, ok := err.(*panicked) // Call returns it as it is
	if !ok {
		return
	}
	slog.ErrorContext(ctx, pkg+": "+p.who+" panicked", append(attributes, "panic", fmt.Sprint(p.value), "stack", string(p.stack))...)
}

// Call calls fn in a goroutine of its own, and returns its error, or another one if it panicked
// or ended its goroutine. who names fn in these, such as "the handler".
func Call(who string, fn func() error) error {
	result := make(chan error, 1)
	go func() {
		err := fmt.Errorf("%s ended its goroutine", who)
		defer func() {
			if value := recover(); value != nil {
				err = &panicked{who, value, debug.Stack()}
			}
			result <- err
		}()
		err = fn()
	}()
	return <-result
}
