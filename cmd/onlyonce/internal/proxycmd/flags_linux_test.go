package proxycmd

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

func TestReload_AFileThatHasBecomeAPipeIsNotWaitedFor(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "proxy.yaml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	var c config
	cmd := &cobra.Command{}
	c.addFlags(cmd)
	if err := cmd.ParseFlags([]string{"--config", pipe}); err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := c.readAgain(cmd)
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
