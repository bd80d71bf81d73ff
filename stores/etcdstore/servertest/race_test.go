//go:build race

package servertest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The servers run without the race detector, which would take most of the test's time: what
// is tested is the store.
func init() { buildServer = build }

func build(m *testing.M) (program string, run func() int, err error) {
	dir, err := os.MkdirTemp("", "etcdstore")
	if err != nil {
		return "", nil, err
	}
	program = filepath.Join(dir, "etcd")
	command := exec.Command("go", "test", "-c", "-trimpath", "-o", program, ".")
	if out, err := command.CombinedOutput(); err != nil {
		_ = os.RemoveAll(dir)
		return "", nil, fmt.Errorf("%w: %s", err, out)
	}
	return program, func() int {
		defer os.RemoveAll(dir)
		return m.Run()
	}, nil
}
