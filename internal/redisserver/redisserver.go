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
	"github.com/onlyonce-go/onlyonce/internal/testserver"
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

// program is the program that is started: redis-server, or another one, such as valkey-server, that the
// environment names.
func program() string { return cmp.Or(os.Getenv("ONLYONCE_REDIS_SERVER"), "redis-server") }

// A Server is a process with a directory of its own.
type Server struct {
	testserver.Process

	Bus  string // the port for the other nodes of a cluster
	args []string
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
	dir, err := testserver.NewDir("redis")
	if err != nil {
		return nil, err
	}
	s := &Server{Process: testserver.Process{Dir: dir}}
	for range 5 { // another process may take a port that was free
		s.Port, s.Bus = testserver.FreePort(), testserver.FreePort()
		if s.args, err = args(s); err == nil {
			if err = s.launch(); err == nil {
				return s, nil
			}
		}
	}
	return nil, errors.Join(err, s.Close())
}

func (s *Server) launch() error {
	return s.Run(func() bool { return s.ping() == nil }, program(), s.args...)
}

// Restart starts a server again with its stored data. It kills the server first if it runs.
func (s *Server) Restart() error {
	s.Kill()
	return s.launch()
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
