// Package testserver runs the programs of servers for tests, and kills them.
package testserver

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// A Process is a server's process with a directory of its own, which keeps its data when the
// process is killed.
type Process struct {
	// Port is where clients connect.
	Port string

	// Dir is the directory of the server's data and its log. Close deletes it.
	Dir string

	process *os.Process   // nil: it does not run
	exited  chan struct{} // closed once the process has ended
}

// NewDir makes a directory for a server whose name begins with a prefix.
func NewDir(prefix string) (string, error) { return os.MkdirTemp("", "onlyonce-"+prefix) }

// Run starts the program of a server that does not run. It returns once the server responds,
// or an error if the process has ended.
func (p *Process) Run(responds func() bool, program string, args ...string) error {
	log, err := os.OpenFile(p.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd, err := start(log, program, args)
	if err != nil {
		return err
	}
	exited := make(chan struct{})
	p.process, p.exited = cmd.Process, exited
	go func() {
		defer close(exited)
		_ = cmd.Wait() // killed
	}()
	for {
		select {
		case <-exited:
			return fmt.Errorf("%s has ended: %s", filepath.Base(program), p.Log())
		case <-time.After(10 * time.Millisecond):
			if responds() {
				return nil
			}
		}
	}
}

// start starts a program. If another process has just built the program too, it may still be
// writing it.
func start(log *os.File, program string, args []string) (*exec.Cmd, error) {
	for {
		cmd := exec.Command(program, args...)
		cmd.Stdout, cmd.Stderr = log, log
		err := cmd.Start()
		if !errors.Is(err, syscall.ETXTBSY) {
			return cmd, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (p *Process) log() string { return filepath.Join(p.Dir, "log") }

// Log returns the last lines of the server's log.
func (p *Process) Log() string {
	text, err := os.ReadFile(p.log())
	if err != nil {
		return err.Error()
	}
	const limit = 64 << 10
	return string(text[max(0, len(text)-limit):])
}

// Signal sends a signal to the process, which must run.
func (p *Process) Signal(sig os.Signal) error { return p.process.Signal(sig) }

// Kill ends the process as a crash would, and returns when it is gone.
func (p *Process) Kill() {
	if p.process == nil {
		return
	}
	_ = p.process.Kill() // it may have ended
	<-p.exited
	p.process = nil
}

// Close kills the server and deletes its data.
func (p *Process) Close() error {
	p.Kill()
	return os.RemoveAll(p.Dir)
}

// Address is where the server listens.
func (p *Process) Address() string { return net.JoinHostPort("127.0.0.1", p.Port) }

// taken has a UDP socket for each port that FreePort has returned.
var taken sync.Map

// FreePort returns a TCP port that no outgoing connection gets, and that so stays free while
// its server is down. Until the process ends, it holds the UDP port of the same number: that is
// how FreePort of other processes knows that the port is taken.
func FreePort() string {
	for {
		port := fmt.Sprint(15000 + rand.N(17000))
		held, err := net.ListenPacket("udp", "127.0.0.1:"+port)
		if err != nil {
			continue
		}
		l, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err != nil {
			held.Close()
			continue
		}
		l.Close()
		taken.Store(port, held)
		return port
	}
}
