// Package servertest tests etcdstore on servers of its own. It is a module of its own, so
// that users of etcdstore do not get the server among their dependencies.
package servertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/onlyonce-go/onlyonce/stores/etcdstore"
)

// configFile is the environment variable by which the test's program runs a server.
const configFile = "ONLYONCE_TEST_ETCD_CONFIG"

// program is what servers run: this test's program, or another that buildServer has built.
var (
	program     = os.Args[0]
	buildServer func(m *testing.M) (program string, run func() int, err error)
)

// TestMain is the main function of a server, too, which a test can so kill.
func TestMain(m *testing.M) {
	if file := os.Getenv(configFile); file != "" {
		if err := serve(file); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	run := m.Run
	if buildServer != nil {
		var err error
		if program, run, err = buildServer(m); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(run())
}

// settings are those of a server's process.
type settings struct {
	Name, Dir, Client, Peer string // the last two are addresses
	Cluster                 map[string]string
	Quota                   int64
}

func serve(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var s settings
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	c := embed.NewConfig()
	c.Name, c.Dir, c.LogLevel, c.LogOutputs = s.Name, filepath.Join(s.Dir, "data"), "warn", []string{filepath.Join(s.Dir, "log")}
	c.TickMs, c.ElectionMs, c.UnsafeNoFsync, c.QuotaBackendBytes = 50, 500, true, s.Quota
	c.BcryptCost = 4
	address := func(host string) []url.URL { return []url.URL{{Scheme: "http", Host: host}} }
	c.ListenClientUrls, c.AdvertiseClientUrls = address(s.Client), address(s.Client)
	c.ListenPeerUrls, c.AdvertisePeerUrls = address(s.Peer), address(s.Peer)
	var cluster []string
	for name, peer := range s.Cluster {
		cluster = append(cluster, name+"=http://"+peer)
	}
	c.InitialCluster = strings.Join(cluster, ",")
	e, err := embed.StartEtcd(c)
	if err != nil {
		return err
	}
	return <-e.Err()
}

// An etcdServer is a process that belongs to a test.
type etcdServer struct {
	t testing.TB
	settings
	process *exec.Cmd
	ended   chan struct{}
}

// start starts a cluster of servers that keep their records when they are killed.
func start(t testing.TB, size int, quota int64) []*etcdServer {
	t.Helper()
	var err error
	for range 5 { // another process may take a port that was free
		servers := make([]*etcdServer, size)
		cluster := make(map[string]string)
		for i := range servers {
			servers[i] = &etcdServer{t: t, settings: settings{Name: fmt.Sprint("n", i), Dir: t.TempDir(), Client: freeAddress(t), Peer: freeAddress(t), Cluster: cluster, Quota: quota}}
			cluster[servers[i].Name] = servers[i].Peer
			t.Cleanup(servers[i].kill)
		}
		for _, s := range servers {
			if err = s.launch(); err != nil {
				break
			}
		}
		for _, s := range servers {
			if err == nil {
				err = s.await()
			}
		}
		if err == nil {
			return servers
		}
		for _, s := range servers {
			s.kill()
		}
	}
	t.Fatal(err)
	return nil
}

func (s *etcdServer) launch() error {
	text, err := json.Marshal(s.settings)
	if err != nil {
		return err
	}
	file := filepath.Join(s.Dir, "settings")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	process := exec.Command(program)
	process.Env = append(os.Environ(), configFile+"="+file)
	process.Stderr = os.Stderr
	if err := process.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() { _ = process.Wait(); close(ended) }()
	s.process, s.ended = process, ended
	return nil
}

// await returns once the server answers, or an error if its process has ended.
func (s *etcdServer) await() error {
	client := newClient(s.t, s.Client)
	defer client.Close()
	for {
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
		_, err := client.Get(ctx, "a key")
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-s.ended:
			return errors.New("etcd has ended")
		case <-s.t.Context().Done():
			return s.t.Context().Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// kill ends the process as a crash would.
func (s *etcdServer) kill() {
	if s.process == nil {
		return
	}
	_ = s.process.Process.Kill()
	<-s.ended
	s.process = nil
	if s.t.Failed() {
		log, _ := os.ReadFile(filepath.Join(s.Dir, "log"))
		s.t.Logf("%s\n%s", s.Name, log[max(0, len(log)-4096):])
	}
}

// restart starts a server that was killed, with what it had stored.
func (s *etcdServer) restart() {
	s.t.Helper()
	if err := s.launch(); err != nil {
		s.t.Fatal(err)
	}
}

// copy returns a directory with what a server has stored.
func (s *etcdServer) copy() string {
	s.t.Helper()
	dir := filepath.Join(s.t.TempDir(), "copy")
	s.kill()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(s.Dir, "data"))); err != nil {
		s.t.Fatal(err)
	}
	s.restart()
	return dir
}

// restore brings a server back to what a copy has.
func (s *etcdServer) restore(dir string) {
	s.t.Helper()
	s.kill()
	data := filepath.Join(s.Dir, "data")
	if err := errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(dir))); err != nil {
		s.t.Fatal(err)
	}
	s.restart()
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
	client := newClient(t, addresses...)
	t.Cleanup(func() { client.Close() })
	return client
}

// taken are the addresses that servers of this process have.
var taken sync.Map

// freeAddress returns an address whose port no outgoing connection gets, and that so stays
// free while its server is down.
func freeAddress(t testing.TB) string {
	t.Helper()
	for {
		address := fmt.Sprint("127.0.0.1:", 15000+rand.N(17000))
		l, err := net.Listen("tcp", address)
		if err != nil {
			continue
		}
		l.Close()
		if _, is := taken.LoadOrStore(address, true); !is {
			return address
		}
	}
}

func migrate(t testing.TB, client *clientv3.Client, cfg etcdstore.Config) {
	t.Helper()
	if err := etcdstore.Migrate(t.Context(), client, cfg); err != nil {
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
