package sandboxes

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestAnIdleSessionsProcessIsGoneTheSandboxIsNot(t *testing.T) {
	w := newWorld(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- w.api.Run(ctx) }()
	s := w.start(w.create(`{"ttl":3600}`).ID)
	handle := w.handle(s.ID)
	w.exec("UPDATE sandboxes_sandboxes SET idle_expires_at = unixepoch() - 5")
	eventually(t, "the process ends", func() bool { return !w.api.cfg.Runtime.Alive(handle) })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	now := w.get(s.ID)
	if now.Status != "idle" || now.IdleExpiresAt != nil || !now.ExpiresAt.Equal(*s.ExpiresAt) {
		t.Errorf("it is %+v", now)
	}
	if _, err := os.Stat(filepath.Join(w.dir, "workspaces", s.WorkspaceID)); err != nil {
		t.Error(err)
	}
	w.start(s.ID)
}

func TestTheSessionOfAnExpiredSandboxEnds(t *testing.T) {
	w := newWorld(t)
	s := w.start(w.create(`{"ttl":3600}`).ID)
	handle := w.handle(s.ID)
	w.expire(s.ID)
	if now := w.get(s.ID); now.Status != "expired" {
		t.Errorf("it is %+v", now)
	}
	w.api.sweep(t.Context())
	if w.api.cfg.Runtime.Alive(handle) {
		t.Error("the process runs")
	}
	if now := w.get(s.ID); now.Status != "expired" || now.IdleExpiresAt != nil {
		t.Errorf("it is %+v", now)
	}
}

func TestASweepLeavesLiveSessionsAlone(t *testing.T) {
	w := newWorld(t)
	s := w.start(w.create(`{"ttl":3600}`).ID)
	w.api.sweep(t.Context())
	if now := w.get(s.ID); now.Status != "ready" || !w.api.cfg.Runtime.Alive(w.handle(s.ID)) {
		t.Errorf("it is %+v", now)
	}
}

func TestASessionThatEndsByItselfLeavesTheSandboxFailedUntilItIsStartedAgain(t *testing.T) {
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

func TestStartReplacesASessionThatEndedByItself(t *testing.T) {
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

func TestASessionThatNoRowNamesEnds(t *testing.T) {
	w := newWorld(t)
	s := w.start(w.create(`{}`).ID)
	handle := w.handle(s.ID)
	w.exec("UPDATE sandboxes_sandboxes SET " + noSession) // as another server that can't see this one's processes
	w.api.sweep(t.Context())
	if w.api.cfg.Runtime.Alive(handle) || len(w.api.sessions.all()) != 0 {
		t.Error("the process runs")
	}
}

func TestAStartThatItsServerLostIsTakenBack(t *testing.T) {
	w := newWorld(t)
	s := w.create(`{}`)
	w.exec("UPDATE sandboxes_sandboxes SET session_id = 'session-lost', session_state = 'starting', session_server = ?", w.api.server)
	if now := w.get(s.ID); now.Status != "starting" {
		t.Errorf("it is %+v", now)
	}
	w.api.sweep(t.Context())
	if now := w.get(s.ID); now.Status != "idle" {
		t.Errorf("it is %+v", now)
	}
}

func TestAStartWaitsForAnotherAndThenSaysThatItIsRunning(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Wait = 50 * time.Millisecond })
	s := w.create(`{}`)
	other, err := newServerName() // of this process, which lives
	if err != nil {
		t.Fatal(err)
	}
	w.exec("UPDATE sandboxes_sandboxes SET session_id = 'session-x', session_state = 'starting', session_server = ?", other)
	got := w.send("POST", at(s.ID, "start"), "")
	got.want(t, 409, "request_in_progress")
	if got.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
}

func TestCloseEndsTheSessionsOfThisServerOnly(t *testing.T) {
	dir := t.TempDir()
	one, other := openWorld(t, dir), openWorld(t, dir)
	a, b := one.start(one.create(`{}`).ID), other.start(other.create(`{}`).ID)
	handleA, handleB := one.handle(a.ID), one.handle(b.ID)
	if err := one.api.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if running(handleA) || !running(handleB) {
		t.Errorf("the closed server's session runs: %v, the other's: %v", running(handleA), running(handleB))
	}
	if now := other.get(a.ID); now.Status != "idle" {
		t.Errorf("it is %+v", now)
	}
	one.send("POST", at(a.ID, "start"), "").want(t, 503, "unavailable")
	other.start(a.ID)
}

func TestWhatASessionStartedEndsWithIt(t *testing.T) {
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

func TestNoEndedSessionStaysAZombie(t *testing.T) {
	w := newWorld(t)
	s := w.start(w.create(`{}`).ID)
	pid, _ := number(w.handle(s.ID))
	w.send("POST", at(s.ID, "stop"), "")
	if _, _, err := stat(pid); !os.IsNotExist(err) {
		t.Errorf("the process is still known to the system: %v", err)
	}
}

func TestAHandleDoesNotNameALaterProcessWithTheSameNumber(t *testing.T) {
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
