package proxy_test

import (
	"context"
	"errors"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func newStore() *memstore.Store { return memstore.New(memstore.Config{}) }

// forgetful is a store that takes every lease for lost, once something was sent.
type forgetful struct {
	*memstore.Store
	sent <-chan bool
}

func (s *forgetful) Renew(context.Context, onlyonce.Hold, time.Duration, map[string][]byte) error {
	<-s.sent
	return onlyonce.ErrLost
}

// broken is a store that can't be reached.
type broken struct{}

var errBroken = errors.New("no route to host")

func (broken) Claim(context.Context, onlyonce.Claim) (onlyonce.Record, error) {
	return onlyonce.Record{}, errBroken
}

func (broken) Renew(context.Context, onlyonce.Hold, time.Duration, map[string][]byte) error {
	return errBroken
}

func (broken) Settle(context.Context, onlyonce.Hold, onlyonce.Settlement) error { return errBroken }

func (broken) Lookup(context.Context, onlyonce.ID) (onlyonce.Record, error) {
	return onlyonce.Record{}, errBroken
}
