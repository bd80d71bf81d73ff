package redisstore_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
	"github.com/onlyonce-go/onlyonce/stores/redisstore"
)

func TestStore_ACallWaitsForItsReplicas(t *testing.T) {
	primary, client, unsafe := migrated(t)
	replica := startRedis(t, "--replicaof", "127.0.0.1", primary.Port)
	await(t, replica.client(t), "master_link_status:up", "INFO", "replication")
	await(t, client, "state=online", "INFO", "replication")
	patient := open(t, client, redisstore.Config{Replicas: 1, ReplicaTimeout: time.Minute})
	hazard.Run(t, patient, "replicated")
	s := open(t, client, redisstore.Config{Replicas: 1, ReplicaTimeout: 10 * time.Millisecond})

	if err := replica.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	alone := hazard.Claim("alone")
	wants := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "0 of 1 replicas") {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := s.Claim(t.Context(), alone)
	wants("a claim", err)
	id := hazard.Run(t, unsafe, "a result that only the primary has")
	_, err = s.Claim(t.Context(), hazard.Claim(id.Key))
	wants("a replay of a result that a failover would lose", err)
	_, err = s.Lookup(t.Context(), id)
	wants("a lookup of a record that a failover would lose", err)
	// Since Redis 7.2, WAIT covers only writes of its connection, not reads.
	other := open(t, primary.client(t), redisstore.Config{Replicas: 1, ReplicaTimeout: 10 * time.Millisecond})
	_, err = other.Lookup(t.Context(), id)
	wants("a lookup by a process that has written nothing", err)
	other = open(t, primary.client(t), redisstore.Config{Replicas: 1, ReplicaTimeout: 10 * time.Millisecond})
	_, err = other.Claim(t.Context(), hazard.Claim(id.Key))
	wants("a replay to a process that has written nothing", err)

	if err := replica.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if r, err := patient.Claim(t.Context(), hazard.Claim(id.Key)); err != nil || r.State != onlyonce.StateCompleted {
		t.Errorf("a replay got %+v, error %v", r, err)
	}
	if r, err := patient.Claim(t.Context(), alone); err != nil || r.Owner != alone.Owner {
		t.Errorf("the repeated claim got %+v, error %v", r, err)
	}
}

func TestStore_WhileAReplicaIsDownOnlyTheFirstClaimMayTakeEffect(t *testing.T) {
	primary, client, unsafe := migrated(t)
	replica := startRedis(t, "--replicaof", "127.0.0.1", primary.Port)
	await(t, replica.client(t), "master_link_status:up", "INFO", "replication")
	await(t, client, "state=online", "INFO", "replication")
	s := open(t, client, redisstore.Config{Replicas: 1, ReplicaTimeout: 10 * time.Millisecond})

	if err := replica.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Claim(t.Context(), hazard.Claim("first")); err == nil {
		t.Error("a claim that no replica has confirmed succeeded")
	}
	next := hazard.Claim("next")
	if _, err := s.Claim(t.Context(), next); !errors.Is(err, onlyonce.ErrUnavailable) {
		t.Errorf("the error of the next claim is %v, want ErrUnavailable", err)
	}
	if r, err := unsafe.Lookup(t.Context(), next.ID); !errors.Is(err, onlyonce.ErrNotFound) {
		t.Errorf("the next claim has left %+v, error %v", r, err)
	}

	if err := replica.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for {
		r, err := s.Claim(t.Context(), next)
		if err == nil {
			if r.Owner != next.Owner {
				t.Errorf("with the replica, the claim got %+v", r)
			}
			break
		}
		if !strings.Contains(err.Error(), "0 of 1 replicas") { // on a busy machine, the replica may be late again
			t.Fatal(err)
		}
	}
}

// Each primary of a cluster has replicas of its own.
func TestCluster_WhileAReplicaIsDownOnlyTheFirstClaimMayTakeEffect(t *testing.T) {
	nodes := startCluster(t)
	client, _ := connect(t, "redis://"+nodes[0].Address()+","+nodes[1].Address())
	if _, err := redisstore.Migrate(t.Context(), client, redisstore.Config{}); err != nil {
		t.Fatal(err)
	}
	unsafe, s := open(t, client, redisstore.Config{}), open(t, client, redisstore.Config{Replicas: 1, ReplicaTimeout: 2 * time.Second})
	if err := nodes[3].Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	failed := 0
	for i := 0; failed < 3; i++ {
		c := hazard.Claim(strconv.Itoa(i))
		_, err := s.Claim(t.Context(), c)
		if err == nil { // by another primary
			continue
		}
		if failed++; failed == 1 {
			continue
		}
		if !errors.Is(err, onlyonce.ErrUnavailable) {
			t.Errorf("claim %d: error %v, want ErrUnavailable", i, err)
		}
		if r, err := unsafe.Lookup(t.Context(), c.ID); !errors.Is(err, onlyonce.ErrNotFound) {
			t.Errorf("claim %d has left %+v, error %v", i, r, err)
		}
	}
}

func TestStore_WhileTheMemoryIsFullReplicasConfirmSettlements(t *testing.T) {
	primary, client, _ := migrated(t)
	replica := startRedis(t, "--replicaof", "127.0.0.1", primary.Port)
	await(t, replica.client(t), "master_link_status:up", "INFO", "replication")
	await(t, client, "state=online", "INFO", "replication")
	s := open(t, client, redisstore.Config{Replicas: 1, ReplicaTimeout: time.Minute})
	r, err := s.Claim(t.Context(), hazard.Claim("begun"))
	if err != nil {
		t.Fatal(err)
	}
	do(t, client, "CONFIG", "SET", "maxmemory", "1mb")
	if err := s.Settle(t.Context(), hazard.Hold(r), hazard.Completed); err != nil {
		t.Errorf("settle: %v", err)
	}
	if r, err := s.Claim(t.Context(), hazard.Claim("begun")); err != nil || r.State != onlyonce.StateCompleted {
		t.Errorf("the repeat got %+v and error %v", r, err)
	}
}

func TestStore_AServerThatFallsSilentWhileACallWaitsForReplicasIsGivenUp(t *testing.T) {
	t.Parallel()
	server, client, _ := migrated(t)
	s := open(t, client, redisstore.Config{Replicas: 1, ReplicaTimeout: 5 * time.Second})
	claimed := make(chan error, 1)
	go func() {
		_, err := s.Claim(context.Background(), hazard.Claim("silent"))
		claimed <- err
	}()
	await(t, client, "blocked_clients:1", "INFO", "clients")
	if err := server.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-claimed:
		if err == nil {
			t.Error("a claim that no replica has confirmed succeeded")
		}
	case <-time.After(5 * time.Minute):
		t.Error("the claim waits for a server that does not respond")
	}
	if err := server.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// After a failover, the settings of the replica that was promoted decide what is lost.
func TestOpen_RejectsSettingsOfAReplicaThatBreakThePromise(t *testing.T) {
	primary := startRedis(t, "--requirepass", "s3cret", "--masterauth", "s3cret")
	replica := startRedis(t, "--replicaof", "127.0.0.1", primary.Port, "--requirepass", "s3cret", "--masterauth", "s3cret", "--appendonly", "no", "--maxmemory-policy", "allkeys-lru")
	client, cfg := connect(t, "redis://:s3cret@"+primary.Address())
	await(t, replica.clientWith(t, func(o *rueidis.ClientOption) { o.Password = "s3cret" }), "master_link_status:up", "INFO", "replication")
	await(t, client, "state=online", "INFO", "replication")
	if _, err := redisstore.Migrate(t.Context(), client, cfg); err != nil {
		t.Fatal(err)
	}
	_, err := redisstore.Open(t.Context(), client, cfg)
	for _, want := range []string{"eviction: the replica " + replica.Address(), "persistence: the replica " + replica.Address(), "set maxmemory-policy noeviction", "set appendonly yes"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q in it", err, want)
		}
	}
	accepted := cfg
	accepted.AcceptRisks = []string{redisstore.RiskEviction, redisstore.RiskPersistence}
	s := open(t, client, accepted)
	if findings, err := s.Diagnose(t.Context()); err != nil || len(findings) != 2 {
		t.Errorf("%v, %v", findings, err)
	}
	replica.Kill()
	open(t, client, cfg) // whether or not the primary has noticed
}

// Redis does not replicate users.
func TestOpen_RejectsAReplicaThatRejectsTheUser(t *testing.T) {
	primary := startRedis(t)
	replica := startRedis(t, "--replicaof", "127.0.0.1", primary.Port)
	onReplica := replica.client(t)
	await(t, onReplica, "master_link_status:up", "INFO", "replication")
	user := []string{"ACL", "SETUSER", "app", "on", ">s3cret", "~*", "&*", "+@all"}
	do(t, primary.client(t), user...)
	client, cfg := connect(t, "redis://app:s3cret@"+primary.Address())
	await(t, client, "state=online", "INFO", "replication")
	if _, err := redisstore.Migrate(t.Context(), client, cfg); err != nil {
		t.Fatal(err)
	}
	want := "replica: the replica " + replica.Address() + " rejects the store's user"
	if _, err := redisstore.Open(t.Context(), client, cfg); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("without the user, the error is %v, want %q in it", err, want)
	}
	do(t, onReplica, append(user, "-info")...)
	if _, err := redisstore.Open(t.Context(), client, cfg); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("without a permission, the error is %v, want %q in it", err, want)
	}
	accepted := cfg
	accepted.AcceptRisks = []string{"replica"}
	open(t, client, accepted)
	do(t, onReplica, append(user, "+info")...)
	open(t, client, cfg)
}

// Redis turns the append-only file off while a replica loads what its primary has sent.
func TestOpen_DoesNotJudgeAReplicaThatIsBeingSynchronized(t *testing.T) {
	primary := startRedis(t)
	_, cfg, err := redisstore.ParseURL("redis://" + primary.Address())
	if err != nil {
		t.Fatal(err)
	}
	client := primary.client(t)
	if _, err := redisstore.Migrate(t.Context(), client, cfg); err != nil {
		t.Fatal(err)
	}
	do(t, client, "EVAL", "for i = 1, 60000 do redis.call('SET', KEYS[1] .. i, '') end return 1", "1", "k")
	// It loads for a minute, and responds meanwhile.
	replica := startRedis(t, "--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024")
	do(t, replica.client(t), "REPLICAOF", "127.0.0.1", primary.Port)
	await(t, replica.client(t), "aof_enabled:0", "INFO", "persistence")
	open(t, client, cfg)
}
