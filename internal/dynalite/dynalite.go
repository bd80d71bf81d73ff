// Package dynalite starts Dynalite, an emulator of DynamoDB, for the tests of several modules.
package dynalite

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// A Server is a process that keeps its tables in memory.
type Server struct {
	Address string // HOST:PORT
	process *os.Process
	log     bytes.Buffer  // read once the process has ended
	exited  chan struct{} // closed once the process has ended
}

// goOn makes Dynalite go on when a client ends a connection before it has sent a request
// whole, which otherwise ends the process.
const goOn = `process.on("uncaughtException", function (e) {
	if (e.code !== "ECONNRESET") { console.error(e); process.exit(1) }
})`

// Start starts a server that lasts for the test. It skips the test if the program is not
// installed, unless the environment says that no test may be skipped.
func Start(t testing.TB) *Server {
	t.Helper()
	program := needs.Program(t, "dynalite")
	script := filepath.Join(t.TempDir(), "goon.cjs")
	err := os.WriteFile(script, []byte(goOn), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 { // another process may take a port that was free
		var s *Server
		if s, err = launch(program, script); err == nil {
			t.Cleanup(func() {
				s.kill()
				if t.Failed() {
					t.Logf("dynalite:\n%s", s.log.Bytes())
				}
			})
			return s
		}
	}
	t.Fatal(err)
	return nil
}

// launch returns once the server answers, or an error if its process has ended.
func launch(program, script string) (*Server, error) {
	port := testserver.FreePort()
	s := &Server{Address: "127.0.0.1:" + port, exited: make(chan struct{})}
	cmd := exec.Command(program, "--host", "127.0.0.1", "--port", port, "--createTableMs", "0", "--deleteTableMs", "0")
	cmd.Env = append(os.Environ(), "NODE_OPTIONS=--require="+script)
	cmd.Stdout, cmd.Stderr = &s.log, &s.log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s.process = cmd.Process
	go func() {
		defer close(s.exited)
		_ = cmd.Wait() // killed
	}()
	client := http.Client{Timeout: time.Second}
	for {
		select {
		case <-s.exited:
			return nil, fmt.Errorf("dynalite has ended: %s", s.log.Bytes())
		case <-time.After(10 * time.Millisecond):
			if r, err := client.Get(fmt.Sprintf("http://%s/", s.Address)); err == nil {
				return s, r.Body.Close()
			}
		}
	}
}

func (s *Server) kill() {
	_ = s.process.Kill()
	<-s.exited
}
