// Package consumertest has what the tests of the consumers of messages share.
package consumertest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// Patience is how long a test waits for what takes seconds.
const Patience = 3 * time.Minute

// Eventually waits until something holds.
func Eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", Patience, what)
		}
	}
}

// Run runs a consumer until stop is called, or until the end of the test. stop returns when run has. An error
// of run fails the test.
func Run(t *testing.T, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := run(ctx); err != nil {
			t.Error(err)
		}
	}()
	stop = func() {
		cancel()
		<-ended
	}
	t.Cleanup(stop)
	return stop
}

// A Ledger notes what was handled, in its order.
type Ledger struct {
	mu      sync.Mutex
	handled []string
}

// Note adds what was handled.
func (l *Ledger) Note(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.handled = append(l.handled, what)
}

// List returns what was handled.
func (l *Ledger) List() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.handled)
}

// WaitFor waits until so many were handled.
func (l *Ledger) WaitFor(t *testing.T, n int) {
	t.Helper()
	Eventually(t, fmt.Sprintf("%d are handled", n), func() bool { return len(l.List()) >= n })
}

// Want fails the test unless this is what was handled, in this order.
func (l *Ledger) Want(t *testing.T, want ...string) {
	t.Helper()
	if got := l.List(); !slices.Equal(got, want) {
		t.Errorf("handled %q, want %q", got, want)
	}
}
