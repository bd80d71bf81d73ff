package storeurl

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/onlyonce-go/onlyonce/internal/storeurl/modetest"
)

func TestSecret_OfManyProcessesThatMakeASecretOneDoes(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.secret")
	var made, read sync.Map
	var working sync.WaitGroup
	for n := range 16 {
		working.Go(func() {
			did, err := makeSecret(path)
			if err != nil {
				t.Error(err)
			}
			if did {
				made.Store(n, true)
			}
			secret, err := ReadSecret(path, nil)
			if err != nil {
				t.Error(err)
			}
			read.Store(string(secret), true)
		})
	}
	working.Wait()
	count := func(m *sync.Map) (n int) {
		m.Range(func(any, any) bool { n++; return true })
		return n
	}
	if count(&made) != 1 || count(&read) != 1 {
		t.Errorf("%d made one, and %d were read", count(&made), count(&read))
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}

// Not parallel: the umask is the process's.
func TestSecret_ASecretIsPrivateWhateverTheUmask(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	path := filepath.Join(t.TempDir(), "a.secret")
	if _, err := makeSecret(path); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestSecret_AServersStoreWithoutASecretIsWarnedOf(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	secret, err := FingerprintSecret(t.Context(), URL{Engine: Postgres, server: "postgres://u:xxxxx@h/d"}, nil, "", nil, slog.New(slog.NewTextHandler(&log, nil)))
	if secret != nil || err != nil || !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "--fingerprint-secret-file") {
		t.Errorf("%q, %v, log: %s", secret, err, &log)
	}
	short := filepath.Join(t.TempDir(), "short")
	writeFile(t, short, "short\n")
	if _, err := ReadSecret(short, nil); err == nil || !strings.Contains(err.Error(), "openssl rand -hex 32") {
		t.Error(err)
	}
	if _, err := ReadSecret(short+"er", nil); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestSecret_AFileWithASecretThatOtherUsersCanUseIsRejected(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "secret")
	writeFile(t, path, "postgres://u:p@h/d-and-long-enough-for-a-secret\n")
	modetest.Check(t, path, map[os.FileMode]bool{0o400: false, 0o444: true}, func(accept []string) error {
		_, err := ReadSecret(path, accept)
		return err
	})
	modetest.Check(t, path, map[os.FileMode]bool{0o600: false, 0o604: true}, func(accept []string) error {
		_, err := ReadFile(path, accept)
		return err
	})
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
