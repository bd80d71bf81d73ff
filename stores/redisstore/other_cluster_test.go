package redisstore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
	"github.com/onlyonce-go/onlyonce/stores/redisstore"
)

// startClusterOfOne starts a cluster that has one node and is set up.
func startClusterOfOne(t *testing.T) *redisServer {
	t.Helper()
	node := startRedis(t, "--cluster-enabled", "yes", "--appendfsync", "always")
	client := node.nodeClient(t)
	do(t, client, "CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	await(t, client, "cluster_state:ok", "CLUSTER", "INFO")
	if _, err := redisstore.Migrate(t.Context(), client, redisstore.Config{}); err != nil {
		t.Fatal(err)
	}
	return node
}

// A host that is down when a store is opened may turn out to be one of another cluster.
func TestStore_ANodeOfAnotherClusterRunsNothing(t *testing.T) {
	a, b := startClusterOfOne(t), startClusterOfOne(t)
	b.Kill()
	o, _, err := redisstore.ParseURL("redis://" + a.Address() + "," + b.Address())
	if err != nil {
		t.Fatal(err)
	}
	if err := redisstore.CheckAddresses(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	client, err := rueidis.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	s := open(t, client, redisstore.Config{})
	hazard.CheckOtherCluster(t, s, redisstore.ErrOtherCluster, redisstore.ErrForgotten,
		func() { a.Kill(); b.restart() },
		func() { b.Kill(); a.restart() })
}

// A store goes on, without being opened again, where Migrate has been called after the server
// lost its records, but not on a server that was set up before.
func TestStore_GoesOnAfterTheServerIsSetUpAgain(t *testing.T) {
	_, client, s := migrated(t)
	hazard.Run(t, s, "before")
	other := identities(t, client)
	do(t, client, "FLUSHALL")
	if _, err := s.Claim(t.Context(), hazard.Claim("lost")); !errors.Is(err, redisstore.ErrForgotten) {
		t.Errorf("claim: %v", err)
	}
	idle := open(t, client, redisstore.Config{AcceptRisks: []string{redisstore.RiskForgotten}})
	if _, err := redisstore.Migrate(t.Context(), client, redisstore.Config{}); err != nil {
		t.Fatal(err)
	}
	hazard.Run(t, s, "after")
	hazard.Run(t, idle, "after, too")
	if r, err := s.Claim(t.Context(), hazard.Claim("before")); err != nil || r.Attempt != 1 {
		t.Errorf("claim of a command that was lost: %+v, error %v", r, err)
	}

	do(t, client, "FLUSHALL")
	if _, err := s.Claim(t.Context(), hazard.Claim("lost again")); !errors.Is(err, redisstore.ErrForgotten) {
		t.Errorf("claim: %v", err)
	}
	for key, identity := range other {
		do(t, client, "SET", key, identity)
	}
	if _, err := redisstore.Migrate(t.Context(), client, redisstore.Config{}); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Claim(t.Context(), hazard.Claim("after")); !errors.Is(err, redisstore.ErrOtherCluster) {
		t.Errorf("claim on a server that was set up before: %+v, error %v", r, err)
	}
}

// A part of a cluster may lose its records alone.
func TestMigrate_KeepsTheIdentityThatOtherPartitionsHave(t *testing.T) {
	_, client, s := migrated(t)
	id := hazard.Run(t, s, "k")
	var lost []string
	for key := range identities(t, client) {
		if len(lost) < 255 {
			do(t, client, "DEL", key)
			lost = append(lost, key)
		}
	}
	if _, err := redisstore.Open(t.Context(), client, redisstore.Config{}); err == nil || !strings.Contains(err.Error(), "forgotten: 255 of the 256 keys") {
		t.Errorf("open: %v", err)
	}
	if _, err := redisstore.Migrate(t.Context(), client, redisstore.Config{}); err != nil {
		t.Fatal(err)
	}
	hazard.CheckRepeats(t, open(t, client, redisstore.Config{}), map[onlyonce.ID]bool{id: true})

	do(t, client, "SET", lost[0], "another")
	_, err := redisstore.Open(t.Context(), client, redisstore.Config{})
	_, migrateErr := redisstore.Migrate(t.Context(), client, redisstore.Config{})
	for _, err := range []error{err, migrateErr} {
		if err == nil || !strings.Contains(err.Error(), "mixed-servers: ") {
			t.Errorf("partitions of two stores: %v", err)
		}
	}
}

// identities returns the partitions' identities by their keys.
func identities(t *testing.T, client rueidis.Client) map[string]string {
	t.Helper()
	found := make(map[string]string)
	for _, key := range keys(t, client, "*:identity") {
		found[key] = get(t, client, key)
	}
	return found
}
