// Package servertest tests natsstore on servers of its own. It is a module of its own, so
// that users of natsstore do not get the server among their dependencies.
package servertest

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce/stores/natsstore"
)

// configFile is the environment variable by which the test's program runs a server.
const configFile = "ONLYONCE_TEST_NATS_CONFIG"

// TestMain is the main function of a server, too, which a test can so kill.
func TestMain(m *testing.M) {
	if file := os.Getenv(configFile); file != "" {
		os.Exit(serve(file))
	}
	os.Exit(m.Run())
}

func serve(file string) int {
	nothing := func() {}
	options, err := server.ConfigureOptions(flag.NewFlagSet("nats-server", flag.ContinueOnError), []string{"-c", file}, nothing, nothing, nothing)
	if err == nil {
		var s *server.Server
		if s, err = server.NewServer(options); err == nil {
			s.ConfigureLogger()
			err = server.Run(s)
			s.WaitForShutdown()
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// accounts lets everyone in as app, and admin into the system account.
const accounts = `
accounts {
  APP { jetstream: enabled, users: [{user: app, password: app}] }
  SYS { users: [{user: admin, password: admin}] }
}
system_account: SYS
no_auth_user: app
`

// A natsServer is a process that belongs to a test.
type natsServer struct {
	t       testing.TB
	dir     string
	name    string
	port    string
	config  func(s *natsServer) string // what is added to the configuration
	process *exec.Cmd
	ended   chan struct{}
}

// startNATS starts a server that keeps its records when it is killed. Its jetstream
// section has the settings.
func startNATS(t testing.TB, jetstream string) *natsServer {
	t.Helper()
	s := newServer(t, "single", func(s *natsServer) string { return s.jetstream(jetstream) })
	var err error
	for range 5 { // another process may take a port that was free
		s.port = freePort(t)
		if err = s.launch(); err == nil {
			return s
		}
	}
	t.Fatal(err)
	return nil
}

func newServer(t testing.TB, name string, config func(*natsServer) string) *natsServer {
	s := &natsServer{t: t, dir: t.TempDir(), name: name, config: config}
	t.Cleanup(s.kill)
	return s
}

func (s *natsServer) jetstream(settings string) string {
	return fmt.Sprintf("jetstream { store_dir: %q, %s }\n", s.dir, settings)
}

// launch returns once the server answers, or an error if its process has ended.
func (s *natsServer) launch() error {
	file := filepath.Join(s.dir, "nats.conf")
	text := fmt.Sprintf("server_name: %s\nlisten: 127.0.0.1:%s\nmax_payload: 8MB\nlog_file: %q\n%s%s", s.name, s.port, filepath.Join(s.dir, "log"), accounts, s.config(s))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	process := exec.Command(os.Args[0])
	process.Env = append(os.Environ(), configFile+"="+file)
	process.Stderr = os.Stderr
	if err := process.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() { _ = process.Wait(); close(ended) }()
	s.process, s.ended = process, ended
	for {
		select {
		case <-ended:
			return errors.New("nats-server has ended")
		case <-time.After(10 * time.Millisecond):
			if c, err := nats.Connect(s.url()); err == nil {
				c.Close()
				return nil
			}
		}
	}
}

// kill ends the process as a crash would.
func (s *natsServer) kill() {
	if s.process == nil {
		return
	}
	_ = s.process.Process.Kill()
	<-s.ended
	s.process = nil
	if s.t.Failed() {
		log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
		s.t.Logf("%s\n%s", s.name, log)
	}
}

// restart starts a server that was killed, with what it had stored.
func (s *natsServer) restart() {
	s.t.Helper()
	if err := s.launch(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *natsServer) url() string { return "nats://127.0.0.1:" + s.port }

// connect returns a client of servers, which finds them again when they are restarted.
func connect(t testing.TB, servers ...*natsServer) jetstream.JetStream {
	t.Helper()
	return connectWith(t, servers)
}

func connectWith(t testing.TB, servers []*natsServer, options ...nats.Option) jetstream.JetStream {
	t.Helper()
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.url())
	}
	options = append([]nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(20 * time.Millisecond), nats.ReconnectJitter(time.Millisecond, time.Millisecond), nats.IgnoreDiscoveredServers()}, options...)
	conn, err := nats.Connect(strings.Join(urls, ","), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// taken are the ports that servers of this process have.
var taken sync.Map

// freePort returns a port that no outgoing connection gets, and that so stays free while
// its server is down.
func freePort(t testing.TB) string {
	t.Helper()
	for {
		port := fmt.Sprint(15000 + rand.N(17000))
		l, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err != nil {
			continue
		}
		l.Close()
		if _, is := taken.LoadOrStore(port, true); !is {
			return port
		}
	}
}

// unsynced accepts that a test's servers do not write to the disk at once.
var unsynced = []string{natsstore.RiskSyncInterval}

func migrate(t testing.TB, js jetstream.JetStream, cfg natsstore.Config) {
	t.Helper()
	if err := natsstore.Migrate(t.Context(), js, cfg); err != nil {
		t.Fatal(err)
	}
}

// open opens a store, and closes it at the end of the test.
func open(t testing.TB, js jetstream.JetStream, cfg natsstore.Config) *natsstore.Store {
	t.Helper()
	cfg.AcceptRisks = append(cfg.AcceptRisks, unsynced...)
	store, err := natsstore.Open(t.Context(), js, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

// migrated returns a server and a store on it.
func migrated(t testing.TB) (*natsServer, jetstream.JetStream, *natsstore.Store) {
	t.Helper()
	s := startNATS(t, "")
	js := connect(t, s)
	migrate(t, js, natsstore.Config{})
	return s, js, open(t, js, natsstore.Config{})
}
