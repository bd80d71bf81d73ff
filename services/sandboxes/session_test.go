package sandboxes

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func (w *world) start(id string) sandbox {
	w.t.Helper()
	got := w.send("POST", at(id, "start"), "")
	if got.Status != 200 || got.sandbox.Status != "ready" {
		w.t.Fatalf("start responded with %d %s", got.Status, got.Body)
	}
	return got.sandbox
}

func TestSession_StartTwiceKeepsTheSession(t *testing.T) {
	w := newWorld(t)
	s := w.create(`{}`)
	w.start(s.ID)
	first := w.handle(s.ID)
	w.start(s.ID)
	if again := w.handle(s.ID); again != first || !w.api.cfg.Runtime.Alive(first) {
		t.Errorf("the session %q became %q", first, again)
	}
}

func TestSession_ParallelStartsStartOneSession(t *testing.T) {
	counted := &countingRuntime{Runtime: newProcesses()}
	w := newWorld(t, func(c *Config) { c.Runtime = counted })
	s := w.create(`{}`)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if got := w.send("POST", at(s.ID, "start"), ""); got.sandbox.Status != "ready" {
				t.Error(got.Body)
			}
		})
	}
	wg.Wait()
	if counted.n != 1 {
		t.Errorf("%d sessions were started", counted.n)
	}
}

type countingRuntime struct {
	Runtime
	mu sync.Mutex
	n  int
}

func (r *countingRuntime) Start(ctx context.Context, s Session) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n++
	return r.Runtime.Start(ctx, s)
}

func TestSession_StartOfAnExpiredSandboxIsRejected(t *testing.T) {
	w := newWorld(t)
	s := w.create(`{"ttl":3600}`)
	w.expire(s.ID)
	for _, verb := range []string{"start", "keepalive"} {
		got := w.send("POST", at(s.ID, verb), "")
		got.want(t, 409, "sandbox_expired")
		if got.failure.Details["sandbox_id"] != s.ID || got.failure.Details["expires_at"] == nil {
			t.Errorf("%s: details %v", verb, got.failure.Details)
		}
	}
	if now := w.get(s.ID); now.Status != "expired" || w.handle(s.ID) != "" {
		t.Errorf("it is %+v", now)
	}
	if got := w.send("POST", at(s.ID, "stop"), ""); got.Status != 200 || got.sandbox.Status != "expired" {
		t.Errorf("stop: %s", got.Body)
	}
}

func TestSession_KeepaliveLeavesExpiresAtAlone(t *testing.T) {
	w := newWorld(t)
	s := w.create(`{"ttl":3600}`)
	w.start(s.ID)
	w.exec("UPDATE sandboxes_sandboxes SET idle_expires_at = unixepoch() + 30")
	before := w.get(s.ID)
	got := w.send("POST", at(s.ID, "keepalive"), "")
	if got.Status != 200 || !got.sandbox.ExpiresAt.Equal(*s.ExpiresAt) || got.sandbox.IdleExpiresAt.Sub(*before.IdleExpiresAt) < 9*time.Minute {
		t.Errorf("got %d %s, before %+v", got.Status, got.Body, before)
	}
}

func TestSession_KeepaliveStartsNothing(t *testing.T) {
	w := newWorld(t)
	s := w.create(`{}`)
	got := w.send("POST", at(s.ID, "keepalive"), "")
	if got.Status != 200 || got.sandbox.Status != "idle" || got.sandbox.IdleExpiresAt != nil || w.handle(s.ID) != "" {
		t.Errorf("got %d %s", got.Status, got.Body)
	}
}

func TestSession_StopEndsTheSessionAndKeepsTheWorkspace(t *testing.T) {
	w := newWorld(t)
	s := w.start(w.create(`{}`).ID)
	handle := w.handle(s.ID)
	file := filepath.Join(w.dir, "workspaces", s.WorkspaceID, "kept")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got := w.send("POST", at(s.ID, "stop"), "")
		if got.Status != 200 || got.sandbox.Status != "idle" || got.sandbox.IdleExpiresAt != nil {
			t.Errorf("stop responded with %d %s", got.Status, got.Body)
		}
		if w.api.cfg.Runtime.Alive(handle) {
			t.Error("the process runs")
		}
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
	w.start(s.ID)
}

func TestSession_DeleteEndsTheSessionAndRemovesTheWorkspace(t *testing.T) {
	w := newWorld(t)
	s := w.start(w.create(`{}`).ID)
	handle := w.handle(s.ID)
	got := w.send("DELETE", "/v1/sandboxes/"+s.ID, "")
	if got.Status != 204 || got.Body != "" {
		t.Errorf("delete responded with %d %q", got.Status, got.Body)
	}
	if _, err := os.Stat(filepath.Join(w.dir, "workspaces", s.WorkspaceID)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the workspace: %v", err)
	}
	if w.api.cfg.Runtime.Alive(handle) {
		t.Error("the process runs")
	}
	for method, path := range map[string]string{"DELETE": "/v1/sandboxes/" + s.ID, "GET": "/v1/sandboxes/" + s.ID, "POST": at(s.ID, "start")} {
		w.send(method, path, "").want(t, 404, "not_found")
	}
}

func TestSession_AWorkspaceStaysUntilItsLastSandboxIsDeleted(t *testing.T) {
	w := newWorld(t)
	a := w.start(w.create(`{}`).ID)
	b := w.create(`{"workspace_id":"` + a.WorkspaceID + `"}`)
	dir := filepath.Join(w.dir, "workspaces", a.WorkspaceID)
	w.send("DELETE", "/v1/sandboxes/"+a.ID, "")
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
	w.send("DELETE", "/v1/sandboxes/"+b.ID, "")
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the workspace: %v", err)
	}
}

func TestSession_ADeleteThatFailedHalfwayIsFinishedLater(t *testing.T) {
	runtime := &stubbornRuntime{Runtime: newProcesses(), err: errors.New("not now")}
	w := newWorld(t, func(c *Config) { c.Runtime = runtime })
	s := w.start(w.create(`{}`).ID)
	w.send("DELETE", "/v1/sandboxes/"+s.ID, "").want(t, 500, "internal_error")
	w.send("GET", "/v1/sandboxes/"+s.ID, "").want(t, 404, "not_found")
	runtime.err = nil
	w.api.sweep(t.Context())
	if n := w.count("SELECT count(*) FROM sandboxes_sandboxes"); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	if _, err := os.Stat(filepath.Join(w.dir, "workspaces", s.WorkspaceID)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the workspace: %v", err)
	}
}

type stubbornRuntime struct {
	Runtime
	err error
}

func (r *stubbornRuntime) Stop(ctx context.Context, handle string) error {
	if r.err != nil {
		return r.err
	}
	return r.Runtime.Stop(ctx, handle)
}

func TestSession_ASessionThatCanNotStartLeavesTheSandboxFailed(t *testing.T) {
	profiles := map[string]Profile{defaultProfile: {Command: "/nonexistent/command"}}
	w := newWorld(t, func(c *Config) { c.Profiles = profiles })
	s := w.create(`{}`)
	got := w.send("POST", at(s.ID, "start"), "")
	got.want(t, 500, "internal_error")
	if strings.Contains(got.Body, "nonexistent") || !strings.Contains(w.log.String(), "nonexistent") {
		t.Errorf("the cause is to be in the log only: %s", got.Body)
	}
	if now := w.get(s.ID); now.Status != "failed" {
		t.Errorf("it is %+v", now)
	}
	profiles[defaultProfile] = Profile{Command: "sleep", Args: []string{"1000"}}
	w.start(s.ID)
}

// slowRuntime starts nothing until it is let go.
type slowRuntime struct {
	Runtime
	starting, letGo chan struct{}
	handles         chan string
}

func (r *slowRuntime) Start(ctx context.Context, s Session) (string, error) {
	r.starting <- struct{}{}
	<-r.letGo
	handle, err := r.Runtime.Start(ctx, s)
	r.handles <- handle
	return handle, err
}

func TestSession_AStartThatMayNotWaitStartsAndIsRejectedWhileAnotherDoes(t *testing.T) {
	slow := &slowRuntime{newProcesses(), make(chan struct{}), make(chan struct{}), make(chan string, 1)}
	w := newWorld(t, func(c *Config) { c.Runtime, c.Wait = slow, -1 })
	s := w.create(`{}`)
	started := make(chan reply)
	go func() { started <- w.send("POST", at(s.ID, "start"), "") }()
	select {
	case <-slow.starting:
	case got := <-started:
		t.Fatalf("the first got %d %s", got.Status, got.Body)
	}
	w.send("POST", at(s.ID, "start"), "").want(t, 409, "request_in_progress")
	close(slow.letGo)
	if got := <-started; got.sandbox.Status != "ready" {
		t.Errorf("the first got %d %s", got.Status, got.Body)
	}
}

func TestSession_ASandboxThatIsDeletedWhileItStartsLeavesNothing(t *testing.T) {
	slow := &slowRuntime{newProcesses(), make(chan struct{}), make(chan struct{}), make(chan string, 1)}
	w := newWorld(t, func(c *Config) { c.Runtime = slow })
	s := w.create(`{}`)
	started := make(chan reply)
	go func() { started <- w.send("POST", at(s.ID, "start"), "") }()
	<-slow.starting
	if now := w.get(s.ID); now.Status != "starting" {
		t.Errorf("it is %+v", now)
	}
	w.api.sweep(t.Context()) // a start that goes on is none of its business
	if got := w.send("DELETE", "/v1/sandboxes/"+s.ID, ""); got.Status != 204 {
		t.Error(got.Body)
	}
	close(slow.letGo)
	got := <-started
	got.want(t, 404, "not_found")
	if running(<-slow.handles) {
		t.Error("the process runs")
	}
	if left, err := os.ReadDir(filepath.Join(w.dir, "workspaces")); err != nil || len(left) != 0 {
		t.Errorf("workspaces are left: %v %v", left, err)
	}
}
