package sqlite

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
)

// A file is the database's file as it was when the store was opened, with its write-ahead
// log and the index of that, which stay the same files while the writer's connection is open.
type file struct {
	opened openedFile
	log    atomic.Pointer[[]openedFile] // nil: the writer has no connection
}

// An openedFile is a file that SQLite keeps open.
type openedFile struct {
	path string
	info os.FileInfo
}

func newFile(path string) (*file, error) {
	info, err := os.Stat(path)
	return &file{opened: openedFile{path, info}}, err
}

// noteLog notes the log's files once the writer has opened them.
func (f *file) noteLog() {
	var log []openedFile
	for _, suffix := range []string{"-wal", "-shm"} {
		path := f.opened.path + suffix
		if info, err := os.Stat(path); err == nil {
			log = append(log, openedFile{path, info})
		}
	}
	f.log.Store(&log)
}

// forgetLog is called before the writer's connection is closed: the last connection of all
// deletes the log.
func (f *file) forgetLog() { f.log.Store(nil) }

// check returns an error if one of the files was deleted or replaced: other processes, and
// this one after a crash, would not find the records in it.
func (f *file) check() error {
	if err := f.opened.check(); err != nil {
		return err
	}
	if log := f.log.Load(); log != nil {
		for _, part := range *log {
			if err := part.check(); err != nil && f.log.Load() == log {
				return err
			}
		}
	}
	return nil
}

func (f *openedFile) check() error {
	now, err := os.Stat(f.path)
	if err != nil || !os.SameFile(f.info, now) {
		return fmt.Errorf("%w: the file %s was deleted or replaced while it was open: put it back, or close the store and open it again", onlyonce.ErrUnavailable, f.path)
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
