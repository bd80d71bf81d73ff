package proxycmd

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
	"github.com/onlyonce-go/onlyonce/internal/storeurl/modetest"
)

func TestTLS_ACertificatesKeyThatOtherUsersCanUseIsRejected(t *testing.T) {
	t.Parallel()
	ca := cmdtest.NewAuthority(t)
	ca.Sign("a", false)
	modetest.Check(t, ca.Path("a.key"), map[os.FileMode]bool{0o600: false, 0o640: false, 0o644: true, 0o660: true, 0o602: true}, func(accept []string) error {
		_, err := readKeyPair(ca.Path("a.crt"), ca.Path("a.key"), accept)
		return err
	})
}

func TestTLS_AFileThatHasBecomeAPipeIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	ca := cmdtest.NewAuthority(t)
	ca.Sign("a", false)
	crt, key, pipe := ca.Path("a.crt"), ca.Path("a.key"), ca.Path("pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for what, read := range map[string]func() error{
		"a certificate": func() error { _, err := readKeyPair(pipe, key, nil); return err },
		"a key":         func() error { _, err := readKeyPair(crt, pipe, nil); return err },
		"authorities":   func() error { _, err := readRoots(pipe); return err },
		"all of them": func() error {
			if digest(pipe) == digest(crt) {
				t.Error("a change from a file to a pipe is not noticed")
			}
			_, err := readRoots(pipe)
			return err
		},
	} {
		ended := make(chan error, 1)
		go func() { ended <- read() }()
		select {
		case err := <-ended:
			if err == nil || !strings.Contains(err.Error(), "not a regular file") {
				t.Errorf("%s: error %v", what, err)
			}
		case <-time.After(time.Minute):
			t.Errorf("%s: it waits for a writer to the pipe", what)
		}
	}
}
