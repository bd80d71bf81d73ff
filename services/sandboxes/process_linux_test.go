package sandboxes

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestProcess_StartStartsAProcessInTheWorkspaceWithoutTheServersEnvironment(t *testing.T) {
	t.Setenv("ONLYONCE_SECRET", "not for a session")
	w := newWorld(t)
	s := w.start(w.create(`{"ttl":3600}`).ID)
	if s.IdleExpiresAt == nil || s.IdleExpiresAt.Sub(s.CreatedAt) < 10*time.Minute {
		t.Errorf("idle_expires_at is %v, made at %v", s.IdleExpiresAt, s.CreatedAt)
	}
	pid, _, _ := strings.Cut(w.handle(s.ID), ":")
	dir := filepath.Join(w.dir, "workspaces", s.WorkspaceID)
	if cwd, err := os.Readlink("/proc/" + pid + "/cwd"); err != nil || cwd != dir {
		t.Errorf("it runs in %q (%v), want %q", cwd, err, dir)
	}
	environ, err := os.ReadFile("/proc/" + pid + "/environ")
	if want := "PATH=" + sessionPath + "\x00HOME=" + dir + "\x00"; err != nil || string(environ) != want {
		t.Errorf("its environment is %q (%v), want %q", environ, err, want)
	}
	command, err := os.ReadFile("/proc/" + pid + "/cmdline")
	if err != nil || string(command) != "sleep\x002147483647\x00" && !strings.HasSuffix(string(command), "/sleep\x002147483647\x00") {
		t.Errorf("it runs %q (%v)", command, err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the workspace: %v %v", info, err)
	}
	files, err := filepath.Glob("/proc/" + pid + "/fd/*")
	if err != nil || len(files) == 0 {
		t.Errorf("its open files: %v %v", files, err)
	}
	for _, f := range files {
		if name, _ := os.Readlink(f); strings.HasPrefix(name, w.dir) {
			t.Errorf("it has %s open", name)
		}
	}
}

func TestProcess_ASessionThatEndsByItselfLeavesTheSandboxFailedUntilItIsStartedAgain(t *testing.T) {
	w := newWorld(t)
	s := w.start(w.create(`{}`).ID)
	handle := w.handle(s.ID)
	pid, _ := number(handle)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the process ends", func() bool { return !w.api.cfg.Runtime.Alive(handle) })
	w.api.sweep(t.Context())
	if now := w.get(s.ID); now.Status != "failed" || now.IdleExpiresAt != nil {
		t.Errorf("it is %+v", now)
	}
	if w.start(s.ID); w.handle(s.ID) == handle {
		t.Error("no new session")
	}
}

func TestProcess_StartReplacesASessionThatEndedByItself(t *testing.T) {
	w := newWorld(t)
	s := w.start(w.create(`{}`).ID)
	handle := w.handle(s.ID)
	pid, _ := number(handle)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the process ends", func() bool { return !w.api.cfg.Runtime.Alive(handle) })
	if w.start(s.ID); !w.api.cfg.Runtime.Alive(w.handle(s.ID)) {
		t.Error("no session runs")
	}
}

func TestProcess_WhatASessionStartedEndsWithIt(t *testing.T) {
	w := newWorld(t, func(c *Config) {
		c.Profiles = map[string]Profile{defaultProfile: {Command: "sh", Args: []string{"-c", "sleep 1000 & echo $! > child; wait"}}}
	})
	s := w.start(w.create(`{}`).ID)
	file := filepath.Join(w.dir, "workspaces", s.WorkspaceID, "child")
	var child int
	eventually(t, "the child runs", func() bool {
		text, _ := os.ReadFile(file)
		child, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return child > 0
	})
	handle, err := identify(child)
	if err != nil {
		t.Fatal(err)
	}
	w.send("POST", at(s.ID, "stop"), "")
	eventually(t, "the child ends", func() bool { return !running(handle) })
}

func TestProcess_NoEndedSessionStaysAZombie(t *testing.T) {
	w := newWorld(t)
	s := w.start(w.create(`{}`).ID)
	handle := w.handle(s.ID)
	pid, _ := number(handle)
	w.send("POST", at(s.ID, "stop"), "")
	if now, err := identify(pid); now == handle || err != nil && !os.IsNotExist(err) { // another may have its number by now
		t.Errorf("the process is still known to the system: %s, %v", now, err)
	}
}

func TestProcess_AHandleDoesNotNameALaterProcessWithTheSameNumber(t *testing.T) {
	p := newProcesses()
	handle, err := p.Start(t.Context(), Session{Dir: t.TempDir(), Command: "sleep", Args: []string{"1000"}})
	if err != nil {
		t.Fatal(err)
	}
	pid, _, _ := strings.Cut(handle, ":")
	earlier := pid + ":1:" + handle[strings.LastIndexByte(handle, ':')+1:]
	other := newProcesses() // as in another server
	if other.Alive(earlier) || !other.Alive(handle) {
		t.Error("the start of a process counts")
	}
	for _, h := range []string{earlier, pid, "1:1:x", "-1", "0", "nonsense", ""} {
		if err := other.Stop(t.Context(), h); err != nil {
			t.Errorf("%q: %v", h, err)
		}
	}
	if !p.Alive(handle) {
		t.Fatal("a wrong handle ended the process")
	}
	if err := other.Stop(t.Context(), handle); err != nil || p.Alive(handle) {
		t.Errorf("the handle did not end the process: %v", err)
	}
}
