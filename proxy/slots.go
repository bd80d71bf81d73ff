package proxy

import (
	"context"
	"errors"
	"time"
)

// slots bound how many requests are with an upstream at a time.
type slots struct {
	all    chan struct{} // has one for each
	passed chan struct{} // has one for each without a key
	queue  chan struct{} // has one for each that waits
}

// slotWait is how long a request waits for room.
const slotWait = time.Second

var errBusy = errors.New("the upstream has as many requests as MaxConns allows")

func newSlots(n int) slots {
	return slots{
		all:    make(chan struct{}, n),
		passed: make(chan struct{}, n-n/4),
		queue:  make(chan struct{}, n),
	}
}

// take takes a slot, and reports whether there was one in time. One that it took is
// to be given back.
func (s *slots) take(ctx context.Context, keyed bool) bool {
	if !keyed && !s.enter(ctx, s.passed) {
		return false
	}
	if s.enter(ctx, s.all) {
		return true
	}
	if !keyed {
		<-s.passed
	}
	return false
}

func (s *slots) giveBack(keyed bool) {
	<-s.all
	if !keyed {
		<-s.passed
	}
}

func (s *slots) enter(ctx context.Context, room chan struct{}) bool {
	select {
	case room <- struct{}{}:
		return true
	default:
	}
	select {
	case s.queue <- struct{}{}:
		defer func() { <-s.queue }()
	default:
		return false
	}
	over := time.NewTimer(slotWait)
	defer over.Stop()
	select {
	case room <- struct{}{}:
		return true
	case <-over.C:
	case <-ctx.Done():
	}
	return false
}
