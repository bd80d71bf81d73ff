package servertest

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/etcdstore"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
)

func countUnresolved(t *testing.T, s *etcdstore.Store, want int) {
	t.Helper()
	n, oldest, err := s.Unresolved(t.Context())
	if n != want || err != nil || oldest < 0 || oldest > time.Hour {
		t.Errorf("%d are unresolved, the oldest for %v, with error %v, want %d", n, oldest, err, want)
	}
}

// Each call counts the changes that others have made before it.
func TestUnresolved_ALaterCallKnowsWhatOthersHaveChanged(t *testing.T) {
	t.Parallel()
	server, client, s := migrated(t)
	for i := range 20 {
		hazard.RunUnknown(t, s, fmt.Sprint(i))
	}
	countUnresolved(t, s, 20)
	other := open(t, connect(t, server), patient)
	r := hazard.RunUnknown(t, other, "another")
	countUnresolved(t, s, 21)
	countUnresolved(t, other, 21)
	if err := other.Resolve(t.Context(), r, onlyonce.Settlement{State: onlyonce.StateCompleted, Keep: time.Hour}); err != nil {
		t.Fatal(err)
	}
	countUnresolved(t, s, 20)
	// A change of something else does not hide that nothing has changed.
	put(t, client, "another key", "")
	countUnresolved(t, s, 20)
	// A record that was deleted is no longer counted, and one that cannot be read is.
	if _, err := client.Delete(t.Context(), headOf(hazard.Claim("0").ID)); err != nil {
		t.Fatal(err)
	}
	countUnresolved(t, s, 19)
	put(t, client, headOf(hazard.Run(t, s, "damaged")), "damaged")
	countUnresolved(t, s, 20)
	countUnresolved(t, open(t, client, patient), 20)
}

func TestUnresolved_ALaterCallDoesNotReadAllHeads(t *testing.T) {
	t.Parallel()
	server, _, observer := migrated(t)
	const all = 500
	for i := range all {
		hazard.RunUnknown(t, observer, fmt.Sprint(i))
	}
	w := hazard.NewWay(t, server.Client)
	s := open(t, connectTo(t, w.Address()), patient)
	before := w.Received()
	countUnresolved(t, s, all)
	if first := w.Received() - before; first < all*100 {
		t.Errorf("the first call has received %d bytes", first)
	}
	before = w.Received()
	hazard.RunUnknown(t, observer, "another")
	countUnresolved(t, s, all+1)
	if later := w.Received() - before; later > 10_000 {
		t.Errorf("a later call has received %d bytes", later)
	}
}

func TestUnresolved_OutlivesAServerThatWasKilledOrRestoredOrHasCompacted(t *testing.T) {
	t.Parallel()
	server, client, s := migrated(t)
	for i := range 5 {
		hazard.RunUnknown(t, s, fmt.Sprint(i))
	}
	countUnresolved(t, s, 5)
	server.Kill()
	server.restart()
	countUnresolved(t, s, 5)

	// While nothing reaches the store, its watch misses changes that are compacted.
	w := hazard.NewWay(t, server.Client)
	cut := open(t, connectTo(t, w.Address()), patient)
	countUnresolved(t, cut, 5)
	w.Cut()
	for i := range 5 {
		hazard.RunUnknown(t, s, fmt.Sprint("missed ", i))
	}
	if _, err := client.Delete(t.Context(), headOf(hazard.Claim("0").ID)); err != nil {
		t.Fatal(err)
	}
	last := get(t, client, headOf(hazard.RunUnknown(t, s, "last").ID))
	if _, err := client.Compact(t.Context(), last.ModRevision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	w.Open()
	countUnresolved(t, cut, 10)
	countUnresolved(t, s, 10)

	backup := filepath.Join(t.TempDir(), "backup")
	server.check(server.Copy(backup))
	for i := range 5 {
		hazard.RunUnknown(t, s, fmt.Sprint("after the backup ", i))
	}
	countUnresolved(t, s, 15)
	server.check(server.Restore(backup))
	countUnresolved(t, s, 10)
	hazard.RunUnknown(t, s, "after the restore")
	countUnresolved(t, s, 11)
}
