package outbox_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce/outbox"
)

// A broker records the messages that it acknowledged. A call takes a millisecond.
type broker struct {
	mu     sync.Mutex
	got    []outbox.Message
	calls  int
	fail   map[string]error // by payload: the error for a rejected message
	away   error            // the error for every message while it is not nil
	takes  time.Duration    // how long a call takes; 0: a millisecond
	onCall func()
}

func (b *broker) Publish(ctx context.Context, messages []outbox.Message) []error {
	b.mu.Lock()
	b.calls++
	takes, onCall := max(b.takes, time.Millisecond), b.onCall
	b.mu.Unlock()
	if onCall != nil {
		onCall()
	}
	t := time.NewTimer(takes)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	errs := make([]error, len(messages))
	for i, m := range messages {
		switch {
		case ctx.Err() != nil:
			errs[i] = context.Cause(ctx)
		case b.away != nil:
			errs[i] = b.away
		case b.fail[string(m.Payload)] != nil:
			errs[i] = b.fail[string(m.Payload)]
		default:
			b.got = append(b.got, m)
		}
	}
	return errs
}

func (b *broker) change(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

// payloads returns the payloads of the acknowledged messages, in that order.
func (b *broker) payloads() (list []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.got {
		list = append(list, string(m.Payload))
	}
	return list
}

// asked counts the calls.
func (b *broker) asked() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls
}

func (b *broker) want(t *testing.T, payloads ...string) {
	t.Helper()
	if got := b.payloads(); !slices.Equal(got, payloads) {
		t.Errorf("published %v, want %v", got, payloads)
	}
}

// events collects the events of an observer.
type events struct {
	mu   sync.Mutex
	list []outbox.Event
}

func (e *events) observe(_ context.Context, event outbox.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, event)
}

func (e *events) count(outcome outbox.Outcome) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range e.list {
		if event.Outcome == outcome {
			n += max(event.Count, 1)
		}
	}
	return n
}

// start runs a relay until the test ends, or stop is called.
func start(t *testing.T, q outbox.Queue, p outbox.Publisher, cfg outbox.Config) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		outbox.NewRelay(q, p, cfg).Run(ctx)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	t.Cleanup(stop)
	return stop
}

func message(key, payload string) outbox.Message {
	return outbox.Message{Topic: "test", Key: key, Payload: []byte(payload)}
}

func appendAll(t *testing.T, q *memQueue, messages ...outbox.Message) {
	t.Helper()
	if err := q.append(t.Context(), messages...); err != nil {
		t.Fatal(err)
	}
}

func wantLag(t *testing.T, q outbox.Queue, waiting, parked int) {
	t.Helper()
	lag, err := q.Lag(t.Context())
	if err != nil || lag.Waiting != waiting || lag.Parked != parked {
		t.Errorf("%d wait and %d are parked (%v), want %d and %d", lag.Waiting, lag.Parked, err, waiting, parked)
	}
}

// in runs a test in a bubble, where time passes when everyone waits.
func in(t *testing.T, f func(t *testing.T)) { synctest.Test(t, f) }

// pass lets time pass, and waits until all goroutines are idle.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
