// Package coalesce lets concurrent callers share a request.
package coalesce

import (
	"context"
	"sync"
)

// Requests sends a request on behalf of all callers that came before it began. One request
// is under way at a time. The zero Requests is ready to use.
type Requests[T any] struct {
	mu   sync.Mutex
	next *request[T] // has not begun; nil: there is none
	last *request[T] // has begun, and may have ended; nil: there is none
}

type request[T any] struct {
	done   chan struct{}
	result T
	err    error
}

// Do returns the result of a request that begins after the call of Do, or the error of ctx if
// that ends earlier. Callers that share a request share the send of one of them, which must
// therefore not end with that caller's context.
func (s *Requests[T]) Do(ctx context.Context, send func() (T, error)) (result T, err error) {
	s.mu.Lock()
	r := s.next
	if r == nil {
		r = &request[T]{done: make(chan struct{})}
		s.next = r
		go s.run(r, s.last, send)
	}
	s.mu.Unlock()
	select {
	case <-r.done:
		return r.result, r.err
	case <-ctx.Done():
		return result, ctx.Err()
	}
}

// run sends a request once the one before it has ended.
func (s *Requests[T]) run(r, before *request[T], send func() (T, error)) {
	if before != nil {
		<-before.done
	}
	s.mu.Lock()
	s.next, s.last = nil, r
	s.mu.Unlock()
	r.result, r.err = send()
	close(r.done)
}
