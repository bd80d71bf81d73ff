package mysql

import (
	"context"
	"errors"
	"testing"

	"github.com/onlyonce-go/onlyonce/stores/internal/server"
)

func TestFloor_ACallerWhoseContextEndsDoesNotWaitForAnotherOnesRead(t *testing.T) {
	f := newCachedFloor()
	<-f.reading // another caller reads, and its server does not respond
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.read(server.Runner{Ctx: ctx}); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want %v", err, context.Canceled)
	}
}
