// Package servertest tests natsstore on servers of its own. It is a module of its own, so
// that users of natsstore do not get the server among their dependencies.
package servertest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce/internal/natsserver"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
	"github.com/onlyonce-go/onlyonce/stores/natsstore"
)

// accounts lets everyone in as app, and admin into the system account.
const accounts = `
accounts {
  APP { jetstream: enabled, users: [{user: app, password: app}] }
  SYS { users: [{user: admin, password: admin}] }
}
system_account: SYS
no_auth_user: app
`

// A natsServer belongs to a test.
type natsServer struct {
	t      testing.TB
	name   string
	port   string
	config func(s *natsServer) string // additional configuration
	server *natsserver.Server
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
	t.Helper()
	server, err := natsserver.New(name, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Kill()
		if t.Failed() {
			t.Logf("%s\n%s", name, server.Log())
		}
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return &natsServer{t: t, name: name, config: config, server: server}
}

func (s *natsServer) jetstream(settings string) string { return "jetstream { " + settings + " }\n" }

// launch returns once the server responds, or an error if its process has ended.
func (s *natsServer) launch() error {
	s.server.Port, s.server.Settings = s.port, accounts+s.config(s)
	return s.server.Launch()
}

// kill ends the process as a crash would.
func (s *natsServer) kill() { s.server.Kill() }

// restart starts a server that was killed, on the same data.
func (s *natsServer) restart() {
	s.t.Helper()
	if err := s.launch(); err != nil {
		s.t.Fatal(err)
	}
}

// forget makes the server lose everything it had stored. A stream that is deleted and at
// that was recreated sometimes has its old messages.
func (s *natsServer) forget() {
	s.t.Helper()
	s.kill()
	if err := os.RemoveAll(filepath.Join(s.server.Dir, "jetstream")); err != nil {
		s.t.Fatal(err)
	}
	s.restart()
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

// freePort returns a port that stays free while its server is down.
func freePort(testing.TB) string { return testserver.FreePort() }

// unsynced accepts that a test's servers do not write to the disk at once.
var unsynced = []string{natsstore.RiskSyncInterval}

func migrate(t testing.TB, js jetstream.JetStream, cfg natsstore.Config) {
	t.Helper()
	if _, err := natsstore.Migrate(t.Context(), js, cfg); err != nil {
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

// openHasty is open for a store whose calls have little time: Open may have too little of it, too, as
// long as the servers are busy.
func openHasty(t testing.TB, js jetstream.JetStream, cfg natsstore.Config) *natsstore.Store {
	t.Helper()
	cfg.AcceptRisks = append(cfg.AcceptRisks, unsynced...)
	store, err := natsstore.Open(t.Context(), js, cfg)
	for end := time.Now().Add(5 * time.Minute); err != nil && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		store, err = natsstore.Open(t.Context(), js, cfg)
	}
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
