// Package modetest has helpers for tests of the modes of files.
package modetest

import (
	"os"
	"strings"
	"testing"
)

// Check gives a file each of the modes, and fails unless read rejects the file
// just where the mode's value says so. Nothing is rejected if the risk is accepted.
func Check(t *testing.T, file string, modes map[os.FileMode]bool, read func(acceptRisks []string) error) {
	t.Helper()
	for mode, rejected := range modes {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		err := read(nil)
		if (err != nil) != rejected || rejected && (!strings.Contains(err.Error(), "run chmod go-") || !strings.Contains(err.Error(), "--accept-risk file-mode")) {
			t.Errorf("mode %o: %v", mode, err)
		}
		if err := read([]string{"file-mode"}); err != nil {
			t.Errorf("mode %o, accepted: %v", mode, err)
		}
	}
}

// Of returns the modes of a database's files, those that are there.
func Of(t *testing.T, path string) (list []os.FileMode) {
	t.Helper()
	for _, suffix := range []string{"", "-wal", "-shm", ".secret"} {
		if info, err := os.Stat(path + suffix); err == nil {
			list = append(list, info.Mode().Perm())
		}
	}
	return list
}
