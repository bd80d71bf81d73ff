// Package cmdtest has helpers that the tests of several commands share.
package cmdtest

import (
	"os"
	"testing"
	"time"
)

// Soon bounds every wait for a condition; nothing takes as long, even on a busy machine.
const Soon = 3 * time.Minute

// Until waits for a condition.
func Until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(Soon); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in %v: %s", Soon, what)
		}
	}
}

// WriteFile makes a file that only its owner may use.
func WriteFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
