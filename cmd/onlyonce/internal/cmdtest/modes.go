package cmdtest

import (
	"os"
	"strings"
	"testing"
)

// CheckModes gives a file each of the modes, and fails unless read rejects the file
// just where the mode's value says so. Nothing is rejected if the risk is accepted.
func CheckModes(t *testing.T, file string, modes map[os.FileMode]bool, read func(acceptRisks []string) error) {
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
