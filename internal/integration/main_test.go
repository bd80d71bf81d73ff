package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// shared is a directory for files that are created once for several tests.
var shared = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "onlyonce"); err == nil {
		err = os.Chmod(dir, 0o755) // other users run servers on copies of its files
	}
	atEnd = func() { _ = os.RemoveAll(dir) }
	return dir, err
})

// atEnd removes the shared directory if there is one.
var atEnd = func() {}

func TestMain(m *testing.M) {
	if file := os.Getenv(mcpDatabase); file != "" {
		if err := serveMCP(context.Background(), file, os.Getenv(mcpDies)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	atEnd()
	os.Exit(code)
}

func sharedDir(t testing.TB) string {
	t.Helper()
	dir, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

var buildOnce sync.Once

// buildServer builds the server as it is shipped.
func buildServer(t testing.TB) (bin string) {
	t.Helper()
	bin = filepath.Join(sharedDir(t), "onlyonce")
	buildOnce.Do(func() {
		if out, err := exec.Command("go", "build", "-o", bin, "github.com/onlyonce-go/onlyonce/cmd/onlyonce").CombinedOutput(); err != nil {
			t.Fatalf("build the server: %v\n%s", err, out)
		}
	})
	return bin
}
