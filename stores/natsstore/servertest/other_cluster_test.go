package servertest

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
	"github.com/onlyonce-go/onlyonce/stores/natsstore"
)

func TestOpen_RejectsServersOfTwoClusters(t *testing.T) {
	t.Parallel()
	a, b := startNATS(t, ""), startNATS(t, "")
	both := connect(t, a, b)
	rejected := func(err error) {
		t.Helper()
		for _, want := range []string{"mixed-servers: ", a.port, b.port, "servers of one cluster"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("the error is %v, want %q in it", err, want)
			}
		}
	}
	_, err := natsstore.Migrate(t.Context(), both, natsstore.Config{})
	rejected(err)
	for _, server := range []*natsServer{a, b} {
		if _, err := connect(t, server).Stream(t.Context(), natsstore.DefaultStream); err == nil {
			t.Error("a migration that was rejected has made the stream")
		}
	}
	for _, server := range []*natsServer{a, b} {
		migrate(t, connect(t, server), natsstore.Config{})
		_, err := natsstore.Open(t.Context(), both, natsstore.Config{AcceptRisks: unsynced})
		rejected(err)
		_, err = natsstore.Migrate(t.Context(), both, natsstore.Config{})
		rejected(err)
	}
}

// A server of another cluster that is down when the store is opened is found out when the
// connection moves to it.
func TestStore_RunsNothingOnAServerOfAnotherCluster(t *testing.T) {
	t.Parallel()
	a, b := startNATS(t, ""), startNATS(t, "")
	for _, server := range []*natsServer{a, b} {
		migrate(t, connect(t, server), natsstore.Config{})
	}
	b.kill()
	s := open(t, connect(t, a, b), natsstore.Config{Timeout: 5 * time.Second})
	id := hazard.Run(t, s, "k")
	held, err := s.Claim(t.Context(), hazard.Claim("held"))
	if err != nil {
		t.Fatal(err)
	}

	a.kill()
	b.restart()
	var calls sync.WaitGroup
	for name, call := range map[string]func() error{
		"claim":     func() error { _, err := s.Claim(t.Context(), hazard.Claim("k")); return err },
		"new claim": func() error { _, err := s.Claim(t.Context(), hazard.Claim("new")); return err },
		"settle":    func() error { return s.Settle(t.Context(), hazard.Hold(held), hazard.Completed) },
		"renew":     func() error { return s.Renew(t.Context(), hazard.Hold(held), time.Minute, nil) },
		"lookup":    func() error { _, err := s.Lookup(t.Context(), id); return err },
		"count":     func() error { _, _, err := s.Unresolved(t.Context()); return err },
		"list": func() error {
			for _, err := range s.List(t.Context(), onlyonce.Filter{}) {
				if err != nil {
					return err
				}
			}
			return nil
		},
	} {
		calls.Go(func() {
			err := call()
			for err != nil && !errors.Is(err, natsstore.ErrOtherCluster) && t.Context().Err() == nil {
				if errors.Is(err, onlyonce.ErrLost) || errors.Is(err, onlyonce.ErrNotFound) || errors.Is(err, natsstore.ErrForgotten) {
					break
				}
				err = call() // the client has not connected yet
			}
			if !errors.Is(err, natsstore.ErrOtherCluster) {
				t.Errorf("%s on the other cluster: %v", name, err)
			}
		})
	}
	calls.Wait()

	b.kill()
	a.restart()
	for {
		err := s.Settle(t.Context(), hazard.Hold(held), hazard.Completed)
		if err == nil {
			break
		}
		if errors.Is(err, onlyonce.ErrLost) || t.Context().Err() != nil {
			t.Fatalf("settle on the store's own server: %v", err)
		}
	}
	if r, err := s.Lookup(t.Context(), id); err != nil || r.State != onlyonce.StateCompleted {
		t.Errorf("the record is %+v, error %v", r, err)
	}
}
