package servertest

import (
	"strings"
	"testing"
	"time"

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
	hazard.CheckOtherCluster(t, s, natsstore.ErrOtherCluster, natsstore.ErrForgotten, func() {
		a.kill()
		b.restart()
	}, func() {
		b.kill()
		a.restart()
	})
}
