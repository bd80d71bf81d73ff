//go:build linux

package faults

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
)

// A Child is this program, started again for a job.
type Child struct {
	Pid   int
	In    io.WriteCloser
	Out   io.Reader
	Ended chan struct{} // closed by Wait

	cmd    *exec.Cmd
	log    bytes.Buffer
	killed atomic.Bool
	err    error
}

// Start starts this program with an environment variable that names its job. The goroutine
// that has read Out to its end calls Wait.
func Start(variable, value string) (*Child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &Child{Ended: make(chan struct{}), cmd: exec.Command(program)}
	c.cmd.Env = append(os.Environ(), variable+"="+value)
	c.cmd.Stderr = &c.log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.In, c.Out = in, out
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	c.Pid = c.cmd.Process.Pid
	return c, nil
}

// Wait waits for the child's end.
func (c *Child) Wait() {
	c.err = c.cmd.Wait()
	close(c.Ended)
}

// Err returns the error with which the child ended, once it has ended. It is nil if the child
// was killed or succeeded.
func (c *Child) Err() error {
	<-c.Ended
	if c.err == nil || c.killed.Load() {
		return nil
	}
	return fmt.Errorf("process %d: %w", c.Pid, errors.Join(c.err, errors.New(c.log.String())))
}

// Signal sends the child a signal unless it has ended.
func (c *Child) Signal(s syscall.Signal) {
	select {
	case <-c.Ended:
	default:
		_ = syscall.Kill(c.Pid, s) // it may be ending
	}
}

// Kill ends the child as kill -9 does, and returns when it has ended.
func (c *Child) Kill() {
	c.killed.Store(true)
	c.Signal(syscall.SIGKILL)
	<-c.Ended
}
