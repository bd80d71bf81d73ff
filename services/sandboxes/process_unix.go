//go:build unix && !linux

package sandboxes

import (
	"os/exec"
	"strconv"
	"syscall"
)

// certain means that a handle distinguishes a process from every other one. Here, it
// does not distinguish it from a later one with the same number.
const certain = false

func isolate(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func spawn(cmd *exec.Cmd) error { return cmd.Start() }

func killGroup(pid int) {
	if pid > 1 {
		_ = syscall.Kill(-pid, syscall.SIGKILL) // the process may have ended already
	}
}

func identify(pid int) (string, error) { return strconv.Itoa(pid), nil }

func running(handle string) bool {
	pid, ok := number(handle)
	return ok && syscall.Kill(pid, 0) != syscall.ESRCH
}
