package servertest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
	"github.com/onlyonce-go/onlyonce/stores/natsstore"
)

// A cluster is three servers that reach each other by ways that a test can cut.
type cluster struct {
	t     testing.TB
	nodes []*natsServer
	ways  [][]*hazard.Way // by the servers from which and to which they lead
}

func startCluster(t testing.TB) *cluster {
	t.Helper()
	c := &cluster{t: t}
	var err error
	for range 5 { // another process may take a port that was free
		if err = c.launch(); err == nil {
			c.await()
			return c
		}
		for _, n := range c.nodes {
			n.kill()
		}
	}
	t.Fatal(err)
	return nil
}

func (c *cluster) launch() error {
	const size = 3
	c.nodes, c.ways = make([]*natsServer, size), make([][]*hazard.Way, size)
	routes := make([]string, size)
	for to := range size {
		routes[to] = freePort(c.t)
	}
	for from := range size {
		for to := range size {
			var w *hazard.Way
			if from != to {
				w = hazard.NewWay(c.t, "127.0.0.1:"+routes[to])
			}
			c.ways[from] = append(c.ways[from], w)
		}
	}
	// Servers tell each other where the third one listens, and would connect to it past the
	// ways. So they name a port on which nobody listens.
	const nobody = "127.0.0.1:1"
	for i := range size {
		c.nodes[i] = newServer(c.t, fmt.Sprint("n", i), func(s *natsServer) string {
			var others []string
			for _, w := range c.ways[i] {
				if w != nil {
					others = append(others, fmt.Sprintf("%q", "nats://"+w.Address()))
				}
			}
			return s.jetstream("") + fmt.Sprintf("cluster { name: c, listen: 127.0.0.1:%s, advertise: %q, no_advertise: true, pool_size: -1, routes: [%s] }\n",
				routes[i], nobody, strings.Join(others, ", "))
		})
		c.nodes[i].port = freePort(c.t)
	}
	for _, n := range c.nodes {
		if err := n.launch(); err != nil {
			return err
		}
	}
	return nil
}

// await waits until every server is there for a stream, because their leader knows of it.
func (c *cluster) await() {
	c.t.Helper()
	js := connect(c.t, c.nodes...)
	cfg := c.config("first")
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		_, err := natsstore.Migrate(c.t.Context(), js, cfg)
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			c.t.Fatal(err)
		}
	}
	if err := js.DeleteStream(c.t.Context(), cfg.Stream); err != nil {
		c.t.Fatal(err)
	}
}

// isolate cuts a server off from the others. Its clients still reach it.
func (c *cluster) isolate(i int) {
	for j := range c.nodes {
		if j != i {
			c.ways[i][j].Cut()
			c.ways[j][i].Cut()
		}
	}
}

// heal connects all servers.
func (c *cluster) heal() {
	for _, ways := range c.ways {
		for _, w := range ways {
			if w != nil {
				w.Open()
			}
		}
	}
}

// config is that of a store on all servers, which waits for as long as a test does.
func (c *cluster) config(stream string) natsstore.Config {
	return natsstore.Config{Stream: stream, Replicas: len(c.nodes), Timeout: 5 * time.Minute}
}

// leader returns the number of the server that leads a stream.
func (c *cluster) leader(js jetstream.JetStream, stream string) int {
	c.t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
		s, err := js.Stream(ctx, stream)
		cancel()
		if err != nil || s.CachedInfo().Cluster == nil {
			continue
		}
		for i, n := range c.nodes {
			if n.name == s.CachedInfo().Cluster.Leader {
				return i
			}
		}
	}
	c.t.Fatalf("the stream %s has no leader", stream)
	return 0
}

// metaLeader returns the number of the server that leads the cluster.
func (c *cluster) metaLeader() int {
	c.t.Helper()
	admin := connectWith(c.t, c.nodes, nats.UserInfo("admin", "admin")).Conn()
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
		m, err := admin.RequestWithContext(ctx, "$SYS.REQ.SERVER.PING.JSZ", nil)
		cancel()
		if err != nil {
			continue
		}
		var r struct {
			Data struct {
				Meta struct {
					Leader string `json:"leader"`
				} `json:"meta_cluster"`
			} `json:"data"`
		}
		if err := json.Unmarshal(m.Data, &r); err != nil {
			c.t.Fatal(err)
		}
		for i, n := range c.nodes {
			if n.name == r.Data.Meta.Leader {
				return i
			}
		}
	}
	c.t.Fatal("the cluster has no leader")
	return 0
}

func TestCluster_KeepsTheRules(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	runRules(t, connect(t, c.nodes...), c.config("onlyonce"))
}
