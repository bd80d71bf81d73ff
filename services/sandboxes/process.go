package sandboxes

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// processes is the Runtime whose sessions are processes of this machine. Each leads a
// process group, which ends with it.
type processes struct {
	mu  sync.Mutex
	own map[string]chan struct{} // by handle; closed when the process is gone
}

func newProcesses() *processes {
	return &processes{own: map[string]chan struct{}{}}
}

// sessionPath is the PATH of a session.
const sessionPath = "/usr/local/bin:/usr/bin:/bin"

// Start starts the command without a shell and without the server's environment.
func (p *processes) Start(_ context.Context, s Session) (string, error) {
	path, err := exec.LookPath(s.Command)
	if err != nil {
		return "", err
	}
	cmd := exec.Command(path, s.Args...)
	cmd.Dir = s.Dir
	cmd.Env = []string{"PATH=" + sessionPath, "HOME=" + s.Dir}
	isolate(cmd)
	if err := spawn(cmd); err != nil {
		return "", err
	}
	handle, err := identify(cmd.Process.Pid)
	if err != nil {
		killGroup(cmd.Process.Pid)
		_ = cmd.Wait()
		return "", fmt.Errorf("identify the process: %w", err)
	}
	gone := make(chan struct{})
	p.mu.Lock()
	p.own[handle] = gone
	p.mu.Unlock()
	go p.reap(cmd, handle, gone)
	return handle, nil
}

// reap waits until the process ends, and then ends the rest of its process group.
func (p *processes) reap(cmd *exec.Cmd, handle string, gone chan struct{}) {
	_ = cmd.Wait() // how it ended does not matter
	killGroup(cmd.Process.Pid)
	p.mu.Lock()
	delete(p.own, handle)
	p.mu.Unlock()
	close(gone)
}

func (p *processes) child(handle string) (gone chan struct{}, own bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	gone, own = p.own[handle]
	return gone, own
}

// Alive reports whether exactly the process of the handle is running.
func (p *processes) Alive(handle string) bool { return running(handle) }

// Stop kills the process and its group. It kills a process that another server started
// only on platforms where a handle distinguishes it from a later process with the same
// number.
func (p *processes) Stop(ctx context.Context, handle string) error {
	pid, ok := number(handle)
	if !ok {
		return nil
	}
	if gone, own := p.child(handle); own {
		killGroup(pid)
		select {
		case <-gone:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("wait for process %d: %w", pid, context.Cause(ctx))
		}
	}
	if !certain || !running(handle) {
		return nil
	}
	killGroup(pid)
	return waitGone(ctx, handle, pid)
}

// waitGone waits for a process that is not a child of this one.
func waitGone(ctx context.Context, handle string, pid int) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for running(handle) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for process %d: %w", pid, context.Cause(ctx))
		}
	}
	return nil
}

// number returns the process number in a handle.
func number(handle string) (pid int, ok bool) {
	text, _, _ := strings.Cut(handle, ":")
	pid, err := strconv.Atoi(text)
	return pid, err == nil && pid > 0
}
