package servertest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
	"github.com/onlyonce-go/onlyonce/stores/natsstore"
)

func countUnresolved(t *testing.T, s *natsstore.Store, want int) {
	t.Helper()
	n, oldest, err := s.Unresolved(t.Context())
	if n != want || err != nil || oldest < 0 || want > 0 && oldest == 0 {
		t.Errorf("%d are unresolved, the oldest for %v, with error %v, want %d", n, oldest, err, want)
	}
}

func TestUnresolved_ALaterCallReadsOnlyWhatHasChanged(t *testing.T) {
	t.Parallel()
	_, js, s := migrated(t)
	const all = 500
	for i := range all {
		hazard.RunUnknown(t, s, fmt.Sprint(i))
	}
	received := func() uint64 { return js.Conn().Stats().InMsgs }
	before := received()
	countUnresolved(t, s, all)
	if first := received() - before; first < all {
		t.Errorf("the first call has received %d messages", first)
	}
	hazard.Run(t, s, "other")
	r := hazard.RunUnknown(t, s, "another")
	before = received()
	countUnresolved(t, s, all+1)
	if later := received() - before; later > 50 {
		t.Errorf("a later call has received %d messages", later)
	}
	other := open(t, js, natsstore.Config{})
	if err := other.Resolve(t.Context(), r, onlyonce.Settlement{State: onlyonce.StateCompleted, Keep: time.Hour}); err != nil {
		t.Fatal(err)
	}
	countUnresolved(t, s, all)
	countUnresolved(t, other, all)
}

func TestUnresolved_AServerThatHasForgottenHasNoneOfTheOld(t *testing.T) {
	t.Parallel()
	server, js, s := migrated(t)
	for i := range 10 {
		hazard.RunUnknown(t, s, fmt.Sprint(i))
	}
	countUnresolved(t, s, 10)
	server.kill()
	server.restart()
	countUnresolved(t, s, 10)
	server.forget()
	if _, _, err := s.Unresolved(t.Context()); !errors.Is(err, natsstore.ErrForgotten) { // or the next stream is that of another cluster
		t.Errorf("the error is %v", err)
	}
	migrate(t, js, natsstore.Config{})
	countUnresolved(t, s, 0)
	for i := range 20 {
		hazard.RunUnknown(t, s, fmt.Sprint("new", i))
	}
	countUnresolved(t, s, 20)
}
