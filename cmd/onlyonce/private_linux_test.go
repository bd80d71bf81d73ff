package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/onlyonce-go/onlyonce"
)

// modes returns the modes of a database's files, those that are there.
func modes(t *testing.T, path string) (list []os.FileMode) {
	t.Helper()
	for _, suffix := range []string{"", "-wal", "-shm", ".secret"} {
		if info, err := os.Stat(path + suffix); err == nil {
			list = append(list, info.Mode().Perm())
		}
	}
	return list
}

// Not parallel: the umask is the process's.
func TestAStoresFilesArePrivateWhateverTheUmask(t *testing.T) {
	for _, umask := range []int{0, 0o022, 0o077} {
		before := syscall.Umask(umask)
		t.Cleanup(func() { syscall.Umask(before) })
		path := filepath.Join(t.TempDir(), "a b?.db")
		for range 2 { // made, and opened again
			u, err := parseStoreURL("sqlite:" + path)
			if err != nil {
				t.Fatal(err)
			}
			store, err := u.openMigrated(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := store.Claim(t.Context(), onlyonce.Claim{ID: onlyonce.ID{Key: "k"}, Owner: strings.Repeat("o", 16), SkipFingerprint: true, Lease: soon}); err != nil {
				t.Fatal(err)
			}
			check := func(when string) {
				t.Helper()
				got := modes(t, path)
				if len(got) != 3 || slices.Max(got) != 0o600 {
					t.Errorf("umask %o, %s: %o", umask, when, got)
				}
			}
			check("open")
			if _, err := store.db.Exec("PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
				t.Fatal(err)
			}
			check("after a checkpoint")
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
			if got := modes(t, path); slices.Max(got) != 0o600 {
				t.Errorf("umask %o, closed: %o", umask, got)
			}
		}
		syscall.Umask(before)
	}
}

func TestAFileThatEveryUserCanReadIsTightenedUnlessThatIsAccepted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ is, want os.FileMode }{
		{0o644, 0o600}, {0o666, 0o660}, {0o664, 0o660}, {0o660, 0o660}, {0o640, 0o640}, {0o602, 0o600},
	} {
		path := filepath.Join(t.TempDir(), "a.db")
		u, err := parseStoreURL("sqlite:" + path)
		if err != nil {
			t.Fatal(err)
		}
		open := func(accept ...string) *openStore {
			t.Helper()
			store, err := u.openMigrated(t.Context(), accept)
			if err != nil {
				t.Fatal(err)
			}
			return store
		}
		other := open()
		if _, err := other.Claim(t.Context(), onlyonce.Claim{ID: onlyonce.ID{Key: "k"}, Owner: strings.Repeat("o", 16), SkipFingerprint: true, Lease: soon}); err != nil {
			t.Fatal(err)
		}
		for _, suffix := range []string{"", "-wal", "-shm"} {
			if err := os.Chmod(path+suffix, c.is); err != nil {
				t.Fatal(err)
			}
		}
		open("file-mode").Close()
		if got := modes(t, path); len(got) != 3 || slices.Max(got) != c.is {
			t.Errorf("mode %o, accepted: %o", c.is, got)
		}
		open().Close()
		if got := modes(t, path); len(got) != 3 || slices.Max(got) != c.want || slices.Min(got) != c.want {
			t.Errorf("mode %o: %o, want %o", c.is, got, c.want)
		}
		other.Close()
	}
}

func TestAStoreWhoseFileCannotBeTightenedIsRefusedWithTheCommand(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	refuses := func(string, os.FileMode) error { return os.ErrPermission } // as for the file of another user
	err := tighten(path, refuses, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "chmod 600 "+path) || !strings.Contains(err.Error(), "--accept-risk file-mode") {
		t.Error(err)
	}
	var log bytes.Buffer
	if err := tighten(path, os.Chmod, slog.New(slog.NewTextHandler(&log, nil))); err != nil || !strings.Contains(log.String(), "level=WARN") {
		t.Errorf("%v, log: %s", err, &log)
	}
}
