package storeurl

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/storeurl/modetest"
)

// Not parallel: the umask is the process's.
func TestStoreURL_AStoresFilesArePrivateWhateverTheUmask(t *testing.T) {
	for _, umask := range []int{0, 0o022, 0o077} {
		before := syscall.Umask(umask)
		t.Cleanup(func() { syscall.Umask(before) })
		path := filepath.Join(t.TempDir(), "a b?.db")
		for range 2 { // made, and opened again
			u, err := Parse("sqlite:" + path)
			if err != nil {
				t.Fatal(err)
			}
			store, err := u.OpenMigrated(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := store.Claim(t.Context(), onlyonce.Claim{ID: onlyonce.ID{Key: "k"}, Owner: strings.Repeat("o", 16), SkipFingerprint: true, Lease: time.Minute}); err != nil {
				t.Fatal(err)
			}
			check := func(when string) {
				t.Helper()
				got := modetest.Of(t, path)
				if len(got) != 3 || slices.Max(got) != 0o600 {
					t.Errorf("umask %o, %s: %o", umask, when, got)
				}
			}
			check("open")
			if _, err := store.DB.Exec("PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
				t.Fatal(err)
			}
			check("after a checkpoint")
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
			if got := modetest.Of(t, path); slices.Max(got) != 0o600 {
				t.Errorf("umask %o, closed: %o", umask, got)
			}
		}
		syscall.Umask(before)
	}
}

func TestStoreURL_AFileThatEveryUserCanReadIsTightenedUnlessThatIsAccepted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ is, want os.FileMode }{
		{0o644, 0o600}, {0o666, 0o660}, {0o664, 0o660}, {0o660, 0o660}, {0o640, 0o640}, {0o602, 0o600},
	} {
		path := filepath.Join(t.TempDir(), "a.db")
		u, err := Parse("sqlite:" + path)
		if err != nil {
			t.Fatal(err)
		}
		open := func(accept ...string) *Store {
			t.Helper()
			store, err := u.OpenMigrated(t.Context(), accept)
			if err != nil {
				t.Fatal(err)
			}
			return store
		}
		other := open()
		if _, err := other.Claim(t.Context(), onlyonce.Claim{ID: onlyonce.ID{Key: "k"}, Owner: strings.Repeat("o", 16), SkipFingerprint: true, Lease: time.Minute}); err != nil {
			t.Fatal(err)
		}
		for _, suffix := range []string{"", "-wal", "-shm"} {
			if err := os.Chmod(path+suffix, c.is); err != nil {
				t.Fatal(err)
			}
		}
		open("file-mode").Close()
		if got := modetest.Of(t, path); len(got) != 3 || slices.Max(got) != c.is {
			t.Errorf("mode %o, accepted: %o", c.is, got)
		}
		open().Close()
		if got := modetest.Of(t, path); len(got) != 3 || slices.Max(got) != c.want || slices.Min(got) != c.want {
			t.Errorf("mode %o: %o, want %o", c.is, got, c.want)
		}
		other.Close()
	}
}

func TestStoreURL_APathThatIsNoDatabaseKeepsItsMode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	folder, text, pipe := filepath.Join(dir, "folder"), filepath.Join(dir, "text"), filepath.Join(dir, "pipe")
	if err := errors.Join(os.WriteFile(text, []byte("hosts: files dns\n"), 0o600), os.Mkdir(folder, 0o700), syscall.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{folder, text, pipe} {
		const mode = 0o666
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		u, err := Parse("sqlite:" + path)
		if err != nil {
			t.Fatal(err)
		}
		if store, err := u.OpenMigrated(t.Context(), nil); err == nil {
			t.Error(path, "was opened", store.Close())
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
}
