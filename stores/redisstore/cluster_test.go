package redisstore_test

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
	"github.com/onlyonce-go/onlyonce/stores/redisstore"
	"github.com/onlyonce-go/onlyonce/stores/storetest"
)

// startCluster starts three primaries and a replica of each.
func startCluster(t *testing.T) []*redisServer {
	t.Helper()
	nodes := make([]*redisServer, 6)
	clients := make([]rueidis.Client, len(nodes))
	for i := range nodes {
		nodes[i] = startRedis(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "60000")
		clients[i] = nodes[i].nodeClient(t)
	}
	ids := make([]string, len(nodes))
	for i, c := range clients {
		var err error
		if ids[i], err = c.Do(t.Context(), c.B().ClusterMyid().Build()).ToString(); err != nil {
			t.Fatal(err)
		}
		do(t, clients[0], "CLUSTER", "MEET", "127.0.0.1", nodes[i].Port, nodes[i].Bus)
	}
	const slots = 16384
	for i, c := range clients[:3] {
		do(t, c, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(i*slots/3), strconv.Itoa((i+1)*slots/3-1))
	}
	for i, c := range clients {
		await(t, c, "cluster_known_nodes:6", "CLUSTER", "INFO")
		if i >= 3 {
			do(t, c, "CLUSTER", "REPLICATE", ids[i-3])
			await(t, c, "master_link_status:up", "INFO", "replication")
		}
	}
	for _, c := range clients {
		await(t, c, "cluster_state:ok", "CLUSTER", "INFO")
		await(t, c, "cluster_slots_ok:16384", "CLUSTER", "INFO")
	}
	for i, c := range clients[:3] {
		await(t, c, ids[i+3], "CLUSTER", "NODES")
		for j := range 3 {
			await(t, c, "slave "+ids[j], "CLUSTER", "NODES")
		}
	}
	return nodes
}

// await waits until the reply to a command has a text in it.
func await(t *testing.T, client rueidis.Client, text string, command ...string) {
	t.Helper()
	var reply string
	for deadline := time.Now().Add(5 * time.Minute); !strings.Contains(reply, text); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%v does not say %q: %s", command, text, reply)
		}
		var err error
		if reply, err = client.Do(t.Context(), client.B().Arbitrary(command...).Build()).ToString(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCluster_KeepsTheRules(t *testing.T) {
	nodes := startCluster(t)
	var addresses []string
	for _, n := range nodes {
		addresses = append(addresses, n.Address())
	}
	client, whole := connect(t, "redis://"+strings.Join(addresses, ","))
	var n atomic.Int64
	storetest.Run(t, func(t *testing.T) onlyonce.Store {
		cfg := redisstore.Config{Prefix: "t" + strconv.FormatInt(n.Add(1), 10)}
		if _, err := redisstore.Migrate(t.Context(), client, cfg); err != nil {
			t.Fatal(err)
		}
		return open(t, client, cfg)
	})
	for i, node := range nodes[:3] {
		c := node.nodeClient(t)
		if used, err := c.Do(t.Context(), c.B().Dbsize().Build()).AsInt64(); err != nil || used == 0 {
			t.Errorf("primary %d has %d keys, error %v", i, used, err)
		}
	}
	t.Run("a replica has to have safe settings, and may be down", func(t *testing.T) {
		checkReplicas(t, *whole.Client, nodes[3])
	})
}

// checkReplicas checks that a store rejects the settings of a replica, and is opened while the
// replica is down. It kills the replica.
func checkReplicas(t *testing.T, o rueidis.ClientOption, replica *redisServer) {
	var client rueidis.Client
	until(t, "a client knows the replica", func() (err error) {
		if client, err = rueidis.NewClient(o); err != nil {
			return err
		}
		t.Cleanup(client.Close)
		if client.Nodes()[replica.Address()] == nil {
			return errors.New("it does not")
		}
		return nil
	})
	if _, err := redisstore.Migrate(t.Context(), client, redisstore.Config{}); err != nil {
		t.Fatal(err)
	}
	do(t, replica.nodeClient(t), "CONFIG", "SET", "appendonly", "no")
	_, err := redisstore.Open(t.Context(), client, redisstore.Config{})
	if want := "persistence: the replica " + replica.Address(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v, want %q in it", err, want)
	}
	replica.Kill()
	open(t, client, redisstore.Config{}) // the cluster has not noticed
}

func TestCluster_CallsThatComeTogetherThroughAClientForOneNodeSucceed(t *testing.T) {
	node := startRedis(t, "--cluster-enabled", "yes")
	client := node.nodeClient(t)
	do(t, client, "CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	await(t, client, "cluster_state:ok", "CLUSTER", "INFO")
	if _, err := redisstore.Migrate(t.Context(), client, redisstore.Config{}); err != nil {
		t.Fatal(err)
	}
	s := open(t, client, redisstore.Config{})
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			r, err := s.Claim(t.Context(), hazard.Claim(strconv.Itoa(i)))
			if err == nil {
				err = s.Settle(t.Context(), hazard.Hold(r), hazard.Completed)
			}
			if err != nil {
				t.Errorf("caller %d: %v", i, err)
			}
		})
	}
	all.Wait()
}
