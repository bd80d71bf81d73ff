package bearer

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestBearer_AFileThatHasBecomeAPipeIsNotWaitedFor(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "keys.json")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := File(pipe)(t.Context())
		read <- err
	}()
	select {
	case err := <-read:
		if err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("error %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it waits for a writer to the pipe")
	}
}
