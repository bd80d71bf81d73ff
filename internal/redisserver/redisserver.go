// Package redisserver starts Redis servers for tests, and kills them.
package redisserver

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/needs"
)

// ErrMissing is the error of a server whose program is not installed.
var ErrMissing = errors.New("redis-server is not installed")

// Require skips a test if the error of its server is that the program is not installed,
// unless the environment says that no test may be skipped. It ends the test for any other
// error.
func Require(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, ErrMissing) {
		needs.Service(t, "Redis", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// program is what is run: redis-server, or another one, such as valkey-server, that the
// environment names.
func program() string { return cmp.Or(os.Getenv("ONLYONCE_REDIS_SERVER"), "redis-server") }

// A Server is a process with a directory of its own.
type Server struct {
	Port    string
	Bus     string // the port for the other nodes of a cluster
	Dir     string // its data and its log; Close deletes it
	Process *os.Process

	args   []string
	exited chan struct{} // closed once the process has ended
}

// SecondPort stands for Server.Bus among the options of a server that is no node of a
// cluster.
const SecondPort = "{second port}"

// Start starts a server that keeps its records when it is killed. The options are
// added to its command line.
func Start(options ...string) (*Server, error) {
	return start(func(s *Server) ([]string, error) {
		args := append([]string{
			"--port", s.Port, "--cluster-port", s.Bus, "--bind", "127.0.0.1", "--dir", s.Dir,
			"--save", "", "--appendonly", "yes", "--repl-diskless-sync-delay", "0",
		}, options...)
		for i, arg := range args {
			args[i] = strings.ReplaceAll(arg, SecondPort, s.Bus)
		}
		return args, nil
	})
}

// StartSentinel starts a Sentinel with the lines of a configuration, which it
// rewrites.
func StartSentinel(lines ...string) (*Server, error) {
	return start(func(s *Server) ([]string, error) {
		file := filepath.Join(s.Dir, "sentinel.conf")
		text := strings.Join(append([]string{"port " + s.Port, "bind 127.0.0.1", "dir " + s.Dir}, lines...), "\n") + "\n"
		return []string{file, "--sentinel"}, os.WriteFile(file, []byte(text), 0o600)
	})
}

func start(args func(*Server) ([]string, error)) (*Server, error) {
	if _, err := exec.LookPath(program()); err != nil {
		return nil, ErrMissing
	}
	dir, err := os.MkdirTemp("", "onlyonce-redis")
	if err != nil {
		return nil, err
	}
	s := &Server{Dir: dir}
	for range 5 { // another process may take a port that was free
		if err = s.pick(); err == nil {
			if s.args, err = args(s); err == nil {
				if err = s.launch(); err == nil {
					return s, nil
				}
			}
		}
	}
	return nil, errors.Join(err, os.RemoveAll(dir))
}

func (s *Server) pick() (err error) {
	if s.Port, err = freePort(); err == nil {
		s.Bus, err = freePort()
	}
	return err
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port), nil
}

// launch returns once the server answers, or an error if its process has ended.
func (s *Server) launch() error {
	log, err := os.OpenFile(filepath.Join(s.Dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(program(), s.args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	s.Process, s.exited = cmd.Process, exited
	go func() {
		defer close(exited)
		_ = cmd.Wait() // killed
	}()
	for {
		select {
		case <-exited:
			text, _ := os.ReadFile(log.Name())
			return fmt.Errorf("redis-server has ended: %s", text[max(0, len(text)-2048):])
		case <-time.After(10 * time.Millisecond):
			if s.ping() == nil {
				return nil
			}
		}
	}
}

// ping returns an error unless the server has loaded its records.
func (s *Server) ping() error {
	_, err := s.Do("PING")
	if err != nil && strings.HasPrefix(err.Error(), "NOAUTH") {
		return nil
	}
	return err
}

// Do sends a command, whose words hold no blanks, and returns its reply if that is a
// text or a number.
func (s *Server) Do(words ...string) (string, error) {
	c, err := net.Dial("tcp", s.Address())
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := fmt.Fprintf(c, "%s\r\n", strings.Join(words, " ")); err != nil {
		return "", err
	}
	in := bufio.NewReader(c)
	line, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	kind, rest := line[0], strings.TrimSpace(line[1:])
	switch kind {
	case '-':
		return "", errors.New(rest)
	case '$':
		n, err := strconv.Atoi(rest)
		if err != nil || n < 0 {
			return "", err
		}
		text := make([]byte, n)
		_, err = io.ReadFull(in, text)
		return string(text), err
	}
	return rest, nil
}

// Await waits until the reply to a command holds a text.
func (s *Server) Await(ctx context.Context, text string, words ...string) error {
	for {
		reply, err := s.Do(words...)
		if err == nil && strings.Contains(reply, text) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%v does not say %q: %s, error %v", words, text, reply, err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Kill ends the process as a crash would, and returns when it is gone.
func (s *Server) Kill() {
	_ = s.Process.Kill() // it may have ended
	<-s.exited
}

// Restart starts a server again, with what it had stored; it kills it if it runs.
func (s *Server) Restart() error {
	s.Kill()
	return s.launch()
}

// Close kills the server and deletes its data.
func (s *Server) Close() error {
	s.Kill()
	return os.RemoveAll(s.Dir)
}

// Address is where the server listens.
func (s *Server) Address() string { return net.JoinHostPort("127.0.0.1", s.Port) }
