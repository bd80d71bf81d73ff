package redisstore_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
	"github.com/onlyonce-go/onlyonce/stores/redisstore"
)

// knowsWaitaof reports whether a server can confirm that writes are on its disk.
func knowsWaitaof(t *testing.T, s *redisServer) bool {
	t.Helper()
	reply, err := s.Do("WAITAOF", "0", "0", "1")
	if err != nil && !strings.Contains(err.Error(), "unknown command") {
		t.Fatal(reply, err)
	}
	return err == nil
}

func TestFlushed_AServerThatCannotSayWhatIsOnDiskIsRejected(t *testing.T) {
	server, client, _ := migrated(t)
	if knowsWaitaof(t, server) {
		t.Skip("needs a Redis older than 7.2: this server has WAITAOF")
	}
	_, err := redisstore.Open(t.Context(), client, redisstore.Config{Flushed: true})
	if err == nil || !strings.Contains(err.Error(), server.Address()+" does not have WAITAOF, which Flushed needs: upgrade it to Redis 7.2") {
		t.Error(err)
	}
}

func TestFlushed_ACallWaitsForTheDisksOfPrimaryAndReplicas(t *testing.T) {
	primary, client, _ := migrated(t, "--appendfsync", "always")
	if !knowsWaitaof(t, primary) {
		t.Skip("needs Redis 7.2 or newer: this server has no WAITAOF")
	}
	hazard.Run(t, open(t, client, redisstore.Config{Flushed: true, ReplicaTimeout: time.Minute}), "on the primary's disk")

	replica := startRedis(t, "--appendfsync", "always", "--replicaof", "127.0.0.1", primary.Port)
	patient := open(t, client, redisstore.Config{Flushed: true, Replicas: 1, ReplicaTimeout: time.Minute})
	id := hazard.Run(t, patient, "on both disks")
	hasty := open(t, client, redisstore.Config{Flushed: true, Replicas: 1, ReplicaTimeout: 10 * time.Millisecond})
	if err := replica.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := hasty.Claim(t.Context(), hazard.Claim("alone")); err == nil || !strings.Contains(err.Error(), "0 of 1 replicas have the change on disk") {
		t.Errorf("the replica is stopped: %v", err)
	}
	if err := replica.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if r, err := patient.Lookup(t.Context(), id); err != nil || r.State != onlyonce.StateCompleted {
		t.Errorf("%+v, error %v", r, err)
	}

	do(t, client, "CONFIG", "SET", "appendfsync", "no")
	alone := open(t, client, redisstore.Config{Flushed: true, ReplicaTimeout: 10 * time.Millisecond})
	if _, err := alone.Claim(t.Context(), hazard.Claim("not flushed")); err == nil || !strings.Contains(err.Error(), "0 of 1 primary") {
		t.Errorf("a write that is not flushed: %v", err)
	}
}
