//go:build unix && !linux

package sandboxes

import (
	"os/exec"
	"strconv"
	"syscall"
)

// certain says that a handle does not tell a process from a later one with the
// same number.
const certain = false

func isolate(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func spawn(cmd *exec.Cmd) error { return cmd.Start() }

func killGroup(pid int) {
	if pid > 1 {
		_ = syscall.Kill(-pid, syscall.SIGKILL) // it may be gone already
	}
}

func identify(pid int) (string, error) { return strconv.Itoa(pid), nil }

func running(handle string) bool {
	pid, ok := number(handle)
	return ok && syscall.Kill(pid, 0) != syscall.ESRCH
}
