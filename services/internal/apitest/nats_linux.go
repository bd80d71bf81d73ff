package apitest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/onlyonce-go/onlyonce/internal/needs"
)

// A NATS is a server of a test's own, with JetStream, that the test may kill and start
// again. It keeps its address and its data.
type NATS struct {
	// Settings are added to the server's configuration when it starts.
	Settings string

	// User is the user of URL; nil: none.
	User *url.Userinfo

	t       *testing.T
	program string
	at      *net.TCPAddr
	dir     string
	cmd     *exec.Cmd // nil: it does not run
}

// NewNATS returns a server that has not been started. It is killed at the test's end.
func NewNATS(t *testing.T) *NATS {
	t.Helper()
	program := needs.Program(t, "nats-server")
	own := net.IPv4(127, byte(1+rand.N(254)), byte(rand.N(256)), byte(1+rand.N(254)))
	s := &NATS{t: t, program: program, at: freeAddress(t, own), dir: t.TempDir()}
	t.Cleanup(s.Kill)
	return s
}

// URL returns the server's address with its user.
func (s *NATS) URL() string {
	return (&url.URL{Scheme: "nats", Host: s.at.String(), User: s.User}).String()
}

// Start starts the server and waits until it responds to its user.
func (s *NATS) Start() {
	s.t.Helper()
	file := filepath.Join(s.dir, "nats.conf")
	settings := fmt.Sprintf("listen: %q\njetstream: {store_dir: %q}\n%s\n", s.at, s.dir, s.Settings)
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.cmd = exec.Command(s.program, "-c", file)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	const patience = time.Minute
	for end := time.Now().Add(patience); !s.responds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("nats-server does not respond after %v", patience)
		}
	}
}

func (s *NATS) responds() bool {
	conn, err := nats.Connect(s.URL())
	if err != nil {
		return false
	}
	defer conn.Close()
	js, err := conn.JetStream()
	if err != nil {
		return false
	}
	_, err = js.AccountInfo()
	return err == nil
}

// Kill ends the server by SIGKILL if it runs.
func (s *NATS) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.cmd = nil
}

// FreeAddress returns another address for the server, which stays free while it does not listen there.
func (s *NATS) FreeAddress() string {
	s.t.Helper()
	return freeAddress(s.t, s.at.IP).String()
}

// freeAddress returns one that stays free while nobody listens there: nobody else
// has that address of this machine, from which no connection is made either.
func freeAddress(t *testing.T, own net.IP) *net.TCPAddr {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: own})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr)
}
