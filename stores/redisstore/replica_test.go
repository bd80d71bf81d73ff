package redisstore_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/redisstore"
)

func TestStore_ACallWaitsForItsReplicas(t *testing.T) {
	primary, client, unsafe := migrated(t)
	replica := startRedis(t, "--replicaof", "127.0.0.1", primary.Port)
	await(t, replica.client(t), "master_link_status:up", "INFO", "replication")
	await(t, client, "state=online", "INFO", "replication")
	patient := open(t, client, redisstore.Config{Replicas: 1, ReplicaTimeout: time.Minute})
	run(t, patient, "replicated")
	s := open(t, client, redisstore.Config{Replicas: 1, ReplicaTimeout: 10 * time.Millisecond})

	if err := replica.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	alone := claimOf("alone")
	wants := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "0 of 1 replicas") {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := s.Claim(t.Context(), alone)
	wants("a claim", err)
	id := run(t, unsafe, "a result that only the primary has")
	_, err = s.Claim(t.Context(), claimOf(id.Key))
	wants("a replay of what a failover would forget", err)
	_, err = s.Lookup(t.Context(), id)
	wants("a lookup of what a failover would forget", err)

	if err := replica.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if r, err := patient.Claim(t.Context(), claimOf(id.Key)); err != nil || r.State != onlyonce.StateCompleted {
		t.Errorf("a replay got %+v, error %v", r, err)
	}
	if r, err := patient.Claim(t.Context(), alone); err != nil || r.Owner != alone.Owner {
		t.Errorf("the repeated claim got %+v, error %v", r, err)
	}
}
