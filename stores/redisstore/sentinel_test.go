package redisstore_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/redisserver"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
	"github.com/onlyonce-go/onlyonce/stores/redisstore"
)

// startSentinels starts three Sentinels that watch a primary, and returns them and the
// URL of what they watch.
func startSentinels(t *testing.T, primary *redisServer) (sentinels []*redisServer, url string) {
	t.Helper()
	var addresses []string
	for range 3 {
		s := started(t)(redisserver.StartSentinel(
			"sentinel monitor shop 127.0.0.1 "+primary.Port+" 2",
			"sentinel down-after-milliseconds shop 3600000")) // none acts by itself because the machine is slow
		sentinels, addresses = append(sentinels, s), append(addresses, s.Address())
	}
	agree(t, sentinels, primary)
	return sentinels, "redis://" + strings.Join(addresses, ",") + "?master_set=shop"
}

// agree waits until each Sentinel takes a server for the primary, and knows its
// replica and the other Sentinels.
func agree(t *testing.T, sentinels []*redisServer, primary *redisServer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, s := range sentinels {
		if err := s.Await(ctx, "address="+primary.Address()+",slaves=1,sentinels=3", "INFO", "sentinel"); err != nil {
			t.Fatal(err)
		}
	}
}

// until waits until a call succeeds: nobody knows how long a failover takes.
func until(t *testing.T, what string, call func() error) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		err := call()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

func TestSentinel_CallsGoOnAtTheServerThatTakesOver(t *testing.T) {
	primary := startRedis(t)
	replica := startRedis(t, "--replicaof", "127.0.0.1", primary.Port)
	await(t, replica.client(t), "master_link_status:up", "INFO", "replication")
	sentinels, url := startSentinels(t, primary)
	client, cfg := connect(t, url+"&replicas=1&replica_timeout=20s")
	if _, err := redisstore.Migrate(t.Context(), client, cfg); err != nil {
		t.Fatal(err)
	}
	careful, s := open(t, client, cfg), open(t, client, redisstore.Config{})
	before := hazard.Run(t, careful, "before")
	held, err := careful.Claim(t.Context(), hazard.Claim("held"))
	if err != nil {
		t.Fatal(err)
	}

	primary.Kill()
	until(t, "a Sentinel begins the failover", func() error {
		_, err := sentinels[0].Do("SENTINEL", "FAILOVER", "shop")
		return err
	})
	until(t, "a command after the failover", func() error {
		_, err := s.Claim(t.Context(), hazard.Claim("after"))
		return err
	})
	if at, err := replica.Do("INFO", "replication"); err != nil || !strings.Contains(at, "role:master") {
		t.Fatalf("the replica says %s, error %v", at, err)
	}
	if r, err := s.Claim(t.Context(), hazard.Claim(before.Key)); err != nil || r.State != onlyonce.StateCompleted || string(r.Result.Body) != "made" {
		t.Errorf("a replay got %+v, error %v", r, err)
	}
	if err := s.Settle(t.Context(), hazard.Hold(held), hazard.Completed); err != nil {
		t.Errorf("settle what was claimed before: %v", err)
	}
	quick := cfg
	quick.ReplicaTimeout = time.Millisecond
	if _, err := open(t, client, quick).Claim(t.Context(), hazard.Claim("alone")); err == nil || !strings.Contains(err.Error(), "0 of 1 replicas") {
		t.Errorf("a claim that no replica confirms: %v", err)
	}

	agree(t, sentinels, replica) // one that does not yet would make the new primary a replica of the old one
	primary.restart()
	until(t, "the old primary is a replica", func() error {
		at, err := primary.Do("INFO", "replication")
		if err == nil && !strings.Contains(at, "master_link_status:up") {
			err = errors.New(at)
		}
		return err
	})
	hazard.Run(t, careful, "with a replica again")
	if findings, err := careful.Diagnose(t.Context()); err != nil || len(findings) > 0 {
		t.Errorf("%v, %v", findings, err)
	}
	do(t, primary.client(t), "CONFIG", "SET", "appendonly", "no")
	if findings, err := careful.Diagnose(t.Context()); err != nil || len(findings) != 1 || !strings.Contains(findings[0].String(), "persistence: the replica "+primary.Address()) {
		t.Errorf("%v, %v", findings, err)
	}
	for address := range client.Nodes() {
		if _, port, _ := net.SplitHostPort(address); port != replica.Port {
			t.Errorf("the client calls %s", address)
		}
	}
}
