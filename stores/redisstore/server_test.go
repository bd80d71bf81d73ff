package redisstore_test

import (
	"bufio"
	"errors"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/onlyonce-go/onlyonce/stores/redisstore"
)

// A redisServer is a process that belongs to a test.
type redisServer struct {
	t       testing.TB
	dir     string
	options []string
	port    string
	bus     string // the port for the other nodes of a cluster
	process *exec.Cmd
}

// startRedis starts a server that keeps its records when it is killed. The options are
// added to its command line.
func startRedis(t testing.TB, options ...string) *redisServer {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("ONLYONCE_REQUIRE_SERVICES") != "" {
			t.Fatal(err)
		}
		t.Skip("redis-server is not installed: the tests of redisstore start their own servers")
	}
	s := &redisServer{t: t, dir: t.TempDir(), options: options}
	t.Cleanup(s.kill)
	var err error
	for range 5 { // another process may take a port that was free
		s.port, s.bus = freePort(t), freePort(t)
		if err = s.launch(); err == nil {
			return s
		}
	}
	t.Fatal(err)
	return nil
}

// restart starts a server that was killed, with what it had stored.
func (s *redisServer) restart() {
	s.t.Helper()
	if err := s.launch(); err != nil {
		s.t.Fatal(err)
	}
}

// launch returns once the server answers, or an error if its process has ended.
func (s *redisServer) launch() error {
	args := []string{"--port", s.port, "--cluster-port", s.bus, "--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--appendonly", "yes", "--repl-diskless-sync-delay", "0"}
	process := exec.Command("redis-server", append(args, s.options...)...)
	if err := process.Start(); err != nil {
		return err
	}
	s.process = process
	ended := make(chan error, 1)
	go func() { ended <- process.Wait() }()
	for {
		select {
		case err := <-ended:
			return errors.Join(errors.New("redis-server has ended"), err)
		case <-time.After(10 * time.Millisecond):
			if ping(s.address()) == nil {
				return nil
			}
		}
	}
}

// ping returns an error unless the server has loaded its records.
func ping(address string) error {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	reply, err := bufio.NewReader(c).ReadString('\n')
	if err == nil && reply != "+PONG\r\n" {
		err = errors.New(reply)
	}
	return err
}

// kill ends the process as a crash would. Its connections are closed when kill returns.
func (s *redisServer) kill() {
	if s.process == nil {
		return
	}
	s.process.Process.Kill()
	for ping(s.address()) == nil {
		time.Sleep(time.Millisecond)
	}
	s.process = nil
}

func (s *redisServer) address() string { return net.JoinHostPort("127.0.0.1", s.port) }

func (s *redisServer) client(t testing.TB) rueidis.Client {
	t.Helper()
	return s.clientWith(t, func(*rueidis.ClientOption) {})
}

// nodeClient returns a client for this node of a cluster alone.
func (s *redisServer) nodeClient(t testing.TB) rueidis.Client {
	t.Helper()
	return s.clientWith(t, func(o *rueidis.ClientOption) { o.ForceSingleClient = true })
}

func (s *redisServer) clientWith(t testing.TB, change func(*rueidis.ClientOption)) rueidis.Client {
	t.Helper()
	o, err := redisstore.ClientOption("redis://" + s.address())
	if err != nil {
		t.Fatal(err)
	}
	change(&o)
	client, err := rueidis.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// open opens a store, and closes it at the end of the test.
func open(t testing.TB, client rueidis.Client, cfg redisstore.Config) *redisstore.Store {
	t.Helper()
	store, err := redisstore.Open(t.Context(), client, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}
