// Package etcdserver starts etcd servers for tests, kills them, and cuts them off from each
// other.
package etcdserver

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// program returns the path of the server, in the version of the workspace. Go builds it and
// keeps it in its cache.
var program = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "tool", "-n", "go.etcd.io/etcd/server/v3").Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return "", fmt.Errorf("build etcd: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
})

// A Server is a process with a directory of its own, which keeps its records when it is
// killed. It does not flush them, so they would not survive a crash of the machine.
type Server struct {
	// Client and Peer are the addresses where clients and the other members connect.
	Client, Peer string

	// Dir is the directory of the server's data and its log.
	Dir string

	args       []string
	name       string
	advertised string // where the other members find Peer
	health     string // the address that says how the server is
	cluster    string // the names and peer URLs of all members
	process    *os.Process
	pid        atomic.Int64  // of the last process
	exited     chan struct{} // closed once the process has ended
}

func newServer(name string, args []string) (*Server, error) {
	dir, err := os.MkdirTemp("", "onlyonce-etcd")
	if err != nil {
		return nil, err
	}
	s := &Server{Client: freeAddress(), Peer: freeAddress(), Dir: dir, args: args, name: name, health: freeAddress()}
	s.advertised = s.Peer
	return s, nil
}

// Launch starts the process of a server that does not run. It returns once the server
// listens, or an error if the process has ended.
func (s *Server) Launch() error {
	path, err := program()
	if err != nil {
		return err
	}
	scheme := "http://"
	for _, arg := range s.args {
		if strings.HasPrefix(arg, "--cert-file") {
			scheme = "https://"
		}
	}
	cmd, err := start(path, append([]string{
		"--name", s.name, "--data-dir", s.data(), "--log-level", "warn", "--log-outputs", filepath.Join(s.Dir, "log"),
		"--listen-client-urls", scheme + s.Client, "--advertise-client-urls", scheme + s.Client,
		"--listen-peer-urls", "http://" + s.Peer, "--initial-advertise-peer-urls", "http://" + s.advertised,
		"--initial-cluster", s.cluster, "--listen-metrics-urls", "http://" + s.health,
		"--heartbeat-interval", "50", "--election-timeout", "500", "--unsafe-no-fsync", "--bcrypt-cost", "4",
	}, s.args...))
	if err != nil {
		return err
	}
	exited := make(chan struct{})
	s.process, s.exited = cmd.Process, exited
	s.pid.Store(int64(cmd.Process.Pid))
	go func() {
		defer close(exited)
		_ = cmd.Wait() // killed
	}()
	return s.until(func() bool {
		c, err := net.Dial("tcp", s.Client)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// until returns once a condition holds, or an error if the process has ended.
func (s *Server) until(holds func() bool) error {
	for {
		select {
		case <-s.exited:
			return fmt.Errorf("etcd has ended: %s", s.Log())
		case <-time.After(10 * time.Millisecond):
			if holds() {
				return nil
			}
		}
	}
}

// Await returns once the server responds with data that most members agree on, or an error if the
// process has ended.
func (s *Server) Await() error {
	client := &http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	return s.until(func() bool {
		r, err := client.Get("http://" + s.health + "/health")
		if err != nil {
			return false
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		return err == nil && strings.Contains(string(text), `"health":"true"`)
	})
}

// Metrics returns the server's metrics for Prometheus.
func (s *Server) Metrics() (string, error) {
	client := &http.Client{Timeout: time.Minute}
	defer client.CloseIdleConnections()
	r, err := client.Get("http://" + s.health + "/metrics")
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	return string(text), err
}

// start starts a program. Another process that has just built it, too, may still write it.
func start(path string, args []string) (*exec.Cmd, error) {
	for {
		cmd := exec.Command(path, args...)
		err := cmd.Start()
		if !errors.Is(err, syscall.ETXTBSY) {
			return cmd, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Log returns the last lines of the server's log.
func (s *Server) Log() string {
	text, err := os.ReadFile(filepath.Join(s.Dir, "log"))
	if err != nil {
		return err.Error()
	}
	const limit = 16 << 10
	return string(text[max(0, len(text)-limit):])
}

// Signal sends a signal to the process.
func (s *Server) Signal(signal os.Signal) error { return s.process.Signal(signal) }

// has reports whether the process has a socket, as Linux names it.
func (s *Server) has(socket string) bool {
	pid := s.pid.Load()
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if pid == 0 || err != nil {
		return false
	}
	for _, f := range files {
		if to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, f.Name())); err == nil && to == socket {
			return true
		}
	}
	return false
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

// Restart starts a server again with its stored data. It kills the server first if it runs.
func (s *Server) Restart() error {
	s.Kill()
	return s.Launch()
}

// data is the directory of the server's data.
func (s *Server) data() string { return filepath.Join(s.Dir, "data") }

// Copy copies the server's data to a directory that does not exist. It restarts the
// server.
func (s *Server) Copy(dir string) error {
	s.Kill()
	return errors.Join(os.CopyFS(dir, os.DirFS(s.data())), s.Launch())
}

// Restore replaces the server's data by a copy.
func (s *Server) Restore(dir string) error {
	s.Kill()
	return errors.Join(os.RemoveAll(s.data()), os.CopyFS(s.data(), os.DirFS(dir)), s.Launch())
}

// Close kills the server and deletes its data.
func (s *Server) Close() error {
	s.Kill()
	return os.RemoveAll(s.Dir)
}

// taken are the addresses that servers of this process have.
var taken sync.Map

// freeAddress returns an address whose port no outgoing connection gets, and that so stays
// free while its server is down.
func freeAddress() string {
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
