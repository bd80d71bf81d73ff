// Package needs says what a test needs of the machine: a server that runs, or a program that
// is installed. Where it is missing, the test is skipped with one line that names it, or, with
// ONLYONCE_REQUIRE_SERVICES=1, as in CI, it fails.
package needs

import (
	"os"
	"os/exec"
	"testing"
)

// Required reports whether no test may be skipped for want of a server or a program.
func Required() bool { return os.Getenv("ONLYONCE_REQUIRE_SERVICES") == "1" }

// Service ends the test if there is an error, which says why the service called name can't
// be used.
func Service(t testing.TB, name string, err error) {
	t.Helper()
	switch {
	case err == nil:
	case Required():
		t.Fatalf("%s is required: %v", name, err)
	default:
		t.Skipf("%s is not available (CONTRIBUTING.md says how to get it): %v", name, err)
	}
}

// Program returns the path of an installed program. It ends the test if there is none.
func Program(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	Service(t, name, err)
	return path
}

// Time skips the test in short mode, in which the race detector runs. The test kills processes
// or servers, starts many processes, drives a browser, does one thing after another on every
// database, or runs the rules of a store once more on another setup, so that the race detector
// would see little that it does not see in other tests.
func Time(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("run without -short: this test takes long")
	}
}
