package sandboxes

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestSweep_AnIdleSessionsProcessIsGoneTheSandboxIsNot(t *testing.T) {
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

func TestSweep_TheSessionOfAnExpiredSandboxEnds(t *testing.T) {
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

func TestSweep_ASweepLeavesLiveSessionsAlone(t *testing.T) {
	w := newWorld(t)
	s := w.start(w.create(`{"ttl":3600}`).ID)
	w.api.sweep(t.Context())
	if now := w.get(s.ID); now.Status != "ready" || !w.api.cfg.Runtime.Alive(w.handle(s.ID)) {
		t.Errorf("it is %+v", now)
	}
}

func TestSweep_ASessionThatNoRowNamesEnds(t *testing.T) {
	w := newWorld(t)
	s := w.start(w.create(`{}`).ID)
	handle := w.handle(s.ID)
	w.exec("UPDATE sandboxes_sandboxes SET " + noSession) // as another server that can't see this one's processes
	w.api.sweep(t.Context())
	if w.api.cfg.Runtime.Alive(handle) || len(w.api.sessions.all()) != 0 {
		t.Error("the process runs")
	}
}

func TestSweep_AStartThatItsServerLostIsTakenBack(t *testing.T) {
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

func TestSweep_AStartWaitsForAnotherAndThenSaysThatItIsRunning(t *testing.T) {
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

func TestSweep_CloseEndsTheSessionsOfThisServerOnly(t *testing.T) {
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
