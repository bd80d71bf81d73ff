package sqlite

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
)

// A file is the database's file as it was when the store was opened.
type file struct {
	path string
	info os.FileInfo
}

func openedFile(path string) (file, error) {
	info, err := os.Stat(path)
	return file{path, info}, err
}

// check returns an error if the file was deleted or replaced: other processes, and this one
// after a restart, would not find what is written into it.
func (f *file) check() error {
	now, err := os.Stat(f.path)
	if err != nil || !os.SameFile(f.info, now) {
		return fmt.Errorf("%w: the file %s was deleted or replaced while it was open: put it back, or open the store again", onlyonce.ErrUnavailable, f.path)
	}
	return nil
}

// findFileMode finds files of the database that every user of the machine can
// open. They hold the responses of all callers, and SQLite makes them with the
// process's umask.
func findFileMode(path string) *onlyonce.Finding {
	if runtime.GOOS == "windows" || !othersReach(path) {
		return nil
	}
	var names []string
	var mode os.FileMode
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		if info, err := os.Stat(name); err == nil && info.Mode()&0o007 != 0 {
			names = append(names, name)
			mode |= info.Mode().Perm()
		}
	}
	if len(names) == 0 {
		return nil
	}
	f := engine.NewFinding(riskFileMode, fmt.Sprintf("every user of the machine can open the file (mode %04o), which holds the responses of all callers", mode),
		"chmod o-rwx "+strings.Join(names, " "))
	return &f
}

// othersReach reports whether every folder above a file lets all users through.
func othersReach(path string) bool {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return false
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err != nil || info.Mode()&0o001 == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}
