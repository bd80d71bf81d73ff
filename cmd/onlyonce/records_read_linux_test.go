package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/onlyonce-go/onlyonce/internal/storeurl"
)

// TestRecords_AFileThatCanOnlyBeReadIsRead runs as another user, because root may write
// every file.
func TestRecords_AFileThatCanOnlyBeReadIsRead(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("run as root: only root may run a command as another user")
	}
	dir, err := os.MkdirTemp("", "records")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	file := filepath.Join(dir, "a.db")
	u, err := storeurl.Parse("sqlite:" + file)
	if err != nil {
		t.Fatal(err)
	}
	store, err := u.OpenMigrated(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close() // as a server does, it keeps the files of the log open
	s := seeder{t.Context(), store}
	s.claim("running", 1<<40)
	files, err := filepath.Glob(file + "*")
	if err != nil || len(files) != 3 {
		t.Fatalf("%q, %v", files, err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := os.Chmod(f, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, "onlyonce") // where another user may run it
	found, err := exec.LookPath("onlyonce")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "cp", found, program).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	run := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), program, append([]string{"records"}, args...)...)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, args := range [][]string{{"ls", u.String()}, {"show", u.String(), "--key", "running"}, {"stats", u.String()}, {"export", u.String()}} {
		if out, err := run(args...); err != nil || !strings.Contains(out, "POST /items") {
			t.Errorf("%v: %v, and printed\n%s", args, err, out)
		}
	}
	if out, err := run("purge", u.String()); err == nil {
		t.Errorf("purge printed\n%s", out)
	}
}
