package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// recordingRuntime records the commands that it starts.
type recordingRuntime struct {
	Runtime
	got []Session
}

func (r *recordingRuntime) Start(ctx context.Context, s Session) (string, error) {
	r.got = append(r.got, s)
	return r.Runtime.Start(ctx, s)
}

func TestRuns_NoEndpointTakesWhatToRunFromItsCaller(t *testing.T) {
	recorded := &recordingRuntime{Runtime: newProcesses()}
	w := newWorld(t, func(c *Config) { c.Runtime = recorded })
	for _, member := range []string{`"command":"/bin/sh"`, `"args":["-c","id"]`, `"code":"print(1)"`, `"env":{"PATH":"."}`, `"capabilities":["shell"]`} {
		w.send("POST", "/v1/sandboxes", "{"+member+"}").want(t, 400, "validation_error")
	}
	for _, profile := range []string{"/bin/sh", "sh", "../python-default", "python-default ; id", ""} {
		w.send("POST", "/v1/sandboxes", fmt.Sprintf(`{"profile":%q}`, profile)).want(t, 400, "validation_error")
	}
	s := w.create(`{}`)
	for _, verb := range []string{"start", "keepalive", "stop"} {
		w.send("POST", at(s.ID, verb)+"?command=/bin/sh", `{"command":"/bin/sh","args":["-c","id"]}`, "X-Command", "id")
	}
	for _, verb := range []string{"exec", "run", "command", "files"} {
		w.send("POST", at(s.ID, verb), `{"command":"id"}`).want(t, 404, "not_found")
	}
	want := fmt.Sprint([]Session{{filepath.Join(w.dir, "workspaces", s.WorkspaceID), "sleep", []string{"2147483647"}}})
	if got := fmt.Sprint(recorded.got); got != want {
		t.Errorf("started %s, want %s", got, want)
	}
}

func TestRuns_WhatIsInAWorkspaceIsNotRun(t *testing.T) {
	t.Setenv("PATH", os.Getenv("PATH")+":.")
	w := newWorld(t, func(c *Config) {
		c.Profiles = map[string]Profile{defaultProfile: {Command: "touch", Args: []string{"profile-ran"}}}
	})
	s := w.create(`{}`)
	dir := filepath.Join(w.dir, "workspaces", s.WorkspaceID)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"touch", "sh", "python-default", ".profile"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n: > workspace-ran\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	w.start(s.ID)
	ran := func(marker string) bool {
		_, err := os.Stat(filepath.Join(dir, marker))
		return !errors.Is(err, os.ErrNotExist)
	}
	eventually(t, "something ran", func() bool { return ran("profile-ran") || ran("workspace-ran") })
	if ran("workspace-ran") {
		t.Error("a file of the workspace was run")
	}
}
