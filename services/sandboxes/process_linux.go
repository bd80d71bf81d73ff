package sandboxes

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
)

// certain means that a handle distinguishes a process from every other one, including
// earlier and later ones with the same number.
const certain = true

// isolate gives the command its own process group, and ends it with the server.
func isolate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// spawn starts a command on a thread that lives as long as the process, because the
// kernel treats the end of the thread that started a child as the end of its parent.
func spawn(cmd *exec.Cmd) error {
	started := make(chan error, 1)
	spawner() <- func() { started <- cmd.Start() }
	return <-started
}

var spawner = sync.OnceValue(func() chan<- func() {
	jobs := make(chan func())
	go func() {
		runtime.LockOSThread()
		for job := range jobs {
			job()
		}
	}()
	return jobs
})

func killGroup(pid int) {
	if pid > 1 {
		_ = syscall.Kill(-pid, syscall.SIGKILL) // the process may have ended already
	}
}

// identify returns a process's handle: its number, its start time, and the boot of the
// machine from which the start time is counted.
func identify(pid int) (string, error) {
	start, _, err := stat(pid)
	if err != nil {
		return "", err
	}
	boot, err := boot()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d:%s:%s", pid, start, boot), nil
}

var boot = sync.OnceValues(func() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text)), err
})

// stat returns the start time of a process, in ticks since the boot, and its state.
func stat(pid int) (start, state string, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", "", err
	}
	// The second field, the name in parentheses, may contain spaces and parentheses.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 20 {
		return "", "", fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	return fields[19], fields[0], nil
}

// running reports whether the process of the handle is running.
func running(handle string) bool {
	pid, ok := number(handle)
	if !ok {
		return false
	}
	now, err := identify(pid)
	if err != nil || now != handle {
		return false
	}
	_, state, err := stat(pid)
	return err == nil && state != "Z" && state != "X"
}
