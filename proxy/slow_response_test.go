package proxy_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/proxy"
)

// TestListener_AClientThatReadsALongResponseSlowlyDoesNotMakeItsOutcomeUnknown: the
// time limit for the body of a response is the upstream's and not its client's. The
// client leaves in the end, which counts like a response that was read.
func TestListener_AClientThatReadsALongResponseSlowlyDoesNotMakeItsOutcomeUnknown(t *testing.T) {
	t.Parallel()
	const length = 32 << 20 // more than is buffered on the way
	for name, start := range map[string]func(testing.TB, http.HandlerFunc) *proxy.Upstream{
		"HTTP/1.1": upstream,
		"HTTP/2":   upstream2,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var runs atomic.Int32
			up := start(t, func(w http.ResponseWriter, _ *http.Request) {
				runs.Add(1)
				_, _ = io.WriteString(w, strings.Repeat("x", length))
			})
			up.BodyTimeout = 8 * time.Second
			addr := orders(t, up, onlyonce.Config{HoldUnknown: true, Wait: time.Minute}, nil)
			r, _ := http.NewRequestWithContext(t.Context(), "POST", "http://"+addr+"/v1/orders", nil)
			r.Header.Set("Idempotency-Key", "k")
			res, err := client.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(up.BodyTimeout + time.Second) // the client takes a pause
			if n, err := io.CopyN(io.Discard, res.Body, length/4); err != nil {
				t.Errorf("the client got %d bytes, %v", n, err)
			}
			res.Body.Close()
			repeat, body := post(t, addr, "k", "")
			if repeat.StatusCode != 200 || repeat.Header.Get("Idempotency-Replay") != "omitted" || runs.Load() != 1 {
				t.Errorf("a repeat gets %d %.80s after %d runs", repeat.StatusCode, body, runs.Load())
			}
		})
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// A keyed request goes on without its client, and a stream that sends something now and then would
// use its connection forever. As long as the client is there, the stream has no limit.
func TestListener_AnEventStreamWhoseClientHasGoneEnds(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB, http.HandlerFunc) *proxy.Upstream{
		"HTTP/1.1": upstream,
		"HTTP/2":   upstream2,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ended, stop := make(chan struct{}), make(chan struct{})
			up := start(t, func(w http.ResponseWriter, r *http.Request) {
				defer close(ended)
				w.Header().Set("Content-Type", "text/event-stream")
				for r.Context().Err() == nil && !isClosed(stop) {
					_, _ = io.WriteString(w, ":\n")
					_ = http.NewResponseController(w).Flush()
					time.Sleep(10 * time.Millisecond)
				}
			})
			t.Cleanup(func() { close(stop) }) // before the server waits for its handlers
			up.BodyTimeout = 500 * time.Millisecond
			addr := orders(t, up, onlyonce.Config{HoldUnknown: true, Wait: time.Minute}, nil)
			r, _ := http.NewRequestWithContext(t.Context(), "POST", "http://"+addr+"/v1/orders", nil)
			r.Header.Set("Idempotency-Key", "k")
			res, err := client.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			for began := time.Now(); time.Since(began) < 2*up.BodyTimeout; {
				if _, err := io.CopyN(io.Discard, res.Body, 2); err != nil {
					t.Fatalf("while its client reads it, the stream ends: %v", err)
				}
			}
			res.Body.Close()
			select {
			case <-ended:
			case <-time.After(time.Minute):
				t.Fatal("the stream goes on without its client")
			}
			repeat, body := post(t, addr, "k", "")
			wantProblem(t, repeat, body, 409, "outcome_unknown", false)
		})
	}
}
