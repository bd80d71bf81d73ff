// Package natsserver starts NATS servers for tests, and kills them.
package natsserver

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// program returns the path of the server, in the version of the workspace. Go builds it and
// keeps it in its cache.
var program = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "tool", "-n", "nats-server").Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return "", fmt.Errorf("build nats-server: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
})

// A Server is a process with a directory of its own, which keeps its records when it is
// killed.
type Server struct {
	testserver.Process

	// Name is the name by which servers know each other.
	Name string

	// Settings is added to the server's configuration: its jetstream section, and anything else
	// a test needs.
	Settings string
}

// New returns a server that does not run.
func New(name, settings string) (*Server, error) {
	dir, err := testserver.NewDir("nats")
	if err != nil {
		return nil, err
	}
	return &Server{Process: testserver.Process{Port: testserver.FreePort(), Dir: dir}, Name: name, Settings: settings}, nil
}

// Start starts a server that is not part of a cluster.
func Start(settings string) (*Server, error) {
	s, err := New("single", settings)
	if err != nil {
		return nil, err
	}
	for range 5 { // another process may take a port that was free
		if err = s.Launch(); err == nil {
			return s, nil
		}
		s.Port = testserver.FreePort()
	}
	return nil, errors.Join(err, s.Close())
}

// Launch starts the process of a server that does not run. It returns once the server
// responds, or an error if the process has ended.
func (s *Server) Launch() error {
	path, err := program()
	if err != nil {
		return err
	}
	file := filepath.Join(s.Dir, "nats.conf")
	text := fmt.Sprintf("server_name: %s\nlisten: 127.0.0.1:%s\nmax_payload: 8MB\nstore_dir: %q\n%s\n",
		s.Name, s.Port, s.Dir, s.Settings)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	return s.Run(s.responds, path, "-c", file)
}

// Restart starts a server again with its stored data. It kills the server first if it runs.
func (s *Server) Restart() error {
	s.Kill()
	return s.Launch()
}

// responds reports whether the server greets a client. It does so only once it has read its
// streams.
func (s *Server) responds() bool {
	c, err := net.Dial("tcp", s.Address())
	if err != nil {
		return false
	}
	defer c.Close()
	line, err := bufio.NewReader(c).ReadString('\n')
	return err == nil && strings.HasPrefix(line, "INFO ")
}
