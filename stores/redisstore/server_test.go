package redisstore_test

import (
	"testing"

	"github.com/redis/rueidis"

	"github.com/onlyonce-go/onlyonce/internal/redisserver"
	"github.com/onlyonce-go/onlyonce/stores/redisstore"
)

// A redisServer is a process that belongs to a test.
type redisServer struct {
	*redisserver.Server
	t testing.TB
}

// startRedis starts a server that keeps its records when it is killed. The options are
// added to its command line.
func startRedis(t testing.TB, options ...string) *redisServer {
	t.Helper()
	return started(t)(redisserver.Start(options...))
}

// started takes a server, which ends with the test.
func started(t testing.TB) func(*redisserver.Server, error) *redisServer {
	return func(s *redisserver.Server, err error) *redisServer {
		t.Helper()
		redisserver.Require(t, err)
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return &redisServer{s, t}
	}
}

// restart starts a server that was killed, on the same data.
func (s *redisServer) restart() {
	s.t.Helper()
	if err := s.Restart(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *redisServer) client(t testing.TB) rueidis.Client {
	t.Helper()
	return s.clientWith(t, func(*rueidis.ClientOption) {})
}

// connect returns a client for a URL, and the settings of a store.
func connect(t testing.TB, url string) (rueidis.Client, redisstore.Config) {
	t.Helper()
	o, cfg, err := redisstore.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	client, err := rueidis.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client, cfg
}

// nodeClient returns a client for this node of a cluster alone.
func (s *redisServer) nodeClient(t testing.TB) rueidis.Client {
	t.Helper()
	return s.clientWith(t, func(o *rueidis.ClientOption) { o.ForceSingleClient = true })
}

func (s *redisServer) clientWith(t testing.TB, change func(*rueidis.ClientOption)) rueidis.Client {
	t.Helper()
	o, _, err := redisstore.ParseURL("redis://" + s.Address())
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
