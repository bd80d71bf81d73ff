// Package natsserver starts NATS servers for tests, and kills them.
package natsserver

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
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
	// Name is the name by which servers know each other.
	Name string

	// Settings is added to the server's configuration: its jetstream section, and what else
	// a test needs.
	Settings string

	// Port is where clients connect.
	Port string

	// Dir is the directory of the server's data, its configuration and its log. Close
	// deletes it.
	Dir string

	process *os.Process
	exited  chan struct{} // closed once the process has ended
}

// New returns a server that does not run.
func New(name, settings string) (*Server, error) {
	dir, err := os.MkdirTemp("", "onlyonce-nats")
	if err != nil {
		return nil, err
	}
	return &Server{Name: name, Settings: settings, Port: FreePort(), Dir: dir}, nil
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
		s.Port = FreePort()
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
	text := fmt.Sprintf("server_name: %s\nlisten: 127.0.0.1:%s\nmax_payload: 8MB\nlog_file: %q\nstore_dir: %q\n%s\n",
		s.Name, s.Port, filepath.Join(s.Dir, "log"), s.Dir, s.Settings)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	cmd, err := start(path, "-c", file)
	if err != nil {
		return err
	}
	exited := make(chan struct{})
	s.process, s.exited = cmd.Process, exited
	go func() {
		defer close(exited)
		_ = cmd.Wait() // killed
	}()
	for {
		select {
		case <-exited:
			return fmt.Errorf("nats-server has ended: %s", s.Log())
		case <-time.After(10 * time.Millisecond):
			if s.responds() {
				return nil
			}
		}
	}
}

// start starts a program. Another process that has just built it, too, may still write it.
func start(path string, args ...string) (*exec.Cmd, error) {
	for {
		cmd := exec.Command(path, args...)
		err := cmd.Start()
		if !errors.Is(err, syscall.ETXTBSY) {
			return cmd, err
		}
		time.Sleep(10 * time.Millisecond)
	}
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

// Log returns the last lines of the server's log.
func (s *Server) Log() string {
	text, err := os.ReadFile(filepath.Join(s.Dir, "log"))
	if err != nil {
		return err.Error()
	}
	const limit = 64 << 10
	return string(text[max(0, len(text)-limit):])
}

// Kill ends the process as a crash would, and returns when it is gone.
func (s *Server) Kill() {
	if s.process == nil {
		return
	}
	_ = s.process.Kill() // it may have ended
	<-s.exited
	s.process = nil
}

// Restart starts a server again, with what it had stored; it kills it if it runs.
func (s *Server) Restart() error {
	s.Kill()
	return s.Launch()
}

// Close kills the server and deletes its data.
func (s *Server) Close() error {
	s.Kill()
	return os.RemoveAll(s.Dir)
}

// Address is where the server listens.
func (s *Server) Address() string { return net.JoinHostPort("127.0.0.1", s.Port) }

// taken are the ports that servers of this process have.
var taken sync.Map

// FreePort returns a port that no outgoing connection gets, and that so stays free while
// its server is down.
func FreePort() string {
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
