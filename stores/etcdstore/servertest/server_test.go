// Package servertest tests etcdstore on servers of its own. It is a module of its own, so
// that users of etcdstore do not get the server among their dependencies.
package servertest

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/onlyonce-go/onlyonce/internal/etcdserver"
	"github.com/onlyonce-go/onlyonce/stores/etcdstore"
)

// An etcdServer is a server that belongs to a test.
type etcdServer struct {
	*etcdserver.Server
	t testing.TB
}

// start starts a cluster of servers that keep their records when they are killed.
func start(t testing.TB, size int, options ...string) []*etcdServer {
	t.Helper()
	return startCluster(t, size, options...).servers
}

// An etcdCluster is servers that can be cut off from each other.
type etcdCluster struct {
	*etcdserver.Cluster
	servers []*etcdServer
}

func startCluster(t testing.TB, size int, options ...string) etcdCluster {
	t.Helper()
	c, err := etcdserver.StartCluster(size, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, s := range c.Servers {
				t.Log(s.Log())
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	all := etcdCluster{Cluster: c}
	for _, s := range c.Servers {
		all.servers = append(all.servers, &etcdServer{s, t})
	}
	return all
}

func (s *etcdServer) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// restart starts a server again on the same data, and kills it first if it runs.
func (s *etcdServer) restart() {
	s.t.Helper()
	s.check(s.Restart())
}

func newClient(t testing.TB, addresses ...string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: addresses, Logger: zap.NewNop(), MaxCallSendMsgSize: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// connect returns a client of servers, which is closed at the end of the test.
func connect(t testing.TB, servers ...*etcdServer) *clientv3.Client {
	t.Helper()
	var addresses []string
	for _, s := range servers {
		addresses = append(addresses, s.Client)
	}
	return connectTo(t, addresses...)
}

// connectTo returns a client of addresses, which is closed at the end of the test.
func connectTo(t testing.TB, addresses ...string) *clientv3.Client {
	t.Helper()
	client := newClient(t, addresses...)
	t.Cleanup(func() { client.Close() })
	return client
}

func migrate(t testing.TB, client *clientv3.Client, cfg etcdstore.Config) {
	t.Helper()
	if _, err := etcdstore.Migrate(t.Context(), client, cfg); err != nil {
		t.Fatal(err)
	}
}

// open opens a store, and closes it at the end of the test.
func open(t testing.TB, client *clientv3.Client, cfg etcdstore.Config) *etcdstore.Store {
	t.Helper()
	store, err := etcdstore.Open(t.Context(), client, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}
