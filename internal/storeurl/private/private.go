// Package private reads and makes files that other users of the machine must not
// use: those with a secret, and those of a database.
package private

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"runtime"
	"slices"
)

// Risk is the risk of a file that every user of the machine can use:
// sqlstore's name for it, which holds for the other files of a command too.
const Risk = "file-mode"

// Usage describes Risk in the help of --accept-risk.
const Usage = Risk + " for files that other users can use"

// Make makes the file of a database that is not there yet. Only its owner may use
// it, whatever the umask, and SQLite gives the files beside it the same
// mode.
func Make(path string) error {
	if _, err := os.Stat(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return nil // opening the database returns a better error
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return file.Close()
}

// forOthers reports whether a mode lets every user of the machine in. Windows
// has no such modes.
func forOthers(mode fs.FileMode) bool { return mode&0o007 != 0 && runtime.GOOS != "windows" }

// withoutOthers removes the permissions of other users from a mode. It keeps those of
// the group if the group may write, which lets processes of one group share a database;
// a group that may only read comes from the umask.
func withoutOthers(mode fs.FileMode) fs.FileMode {
	mode = mode.Perm() &^ 0o007
	if mode&0o020 == 0 {
		mode &^= 0o070
	}
	return mode
}

// Tighten removes the access of other users to the files of a database, or returns an
// error if it can't.
func Tighten(path string, chmod func(string, fs.FileMode) error, log *slog.Logger) error {
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		info, err := os.Stat(name)
		if err != nil || !forOthers(info.Mode()) {
			continue // opening the file returns a better error
		}
		want := withoutOthers(info.Mode())
		if err := chmod(name, want); err != nil {
			return fmt.Errorf("every user of this machine can open %s (mode %04o), which contains callers' responses: %w; run chmod %o %s, or accept it with --accept-risk %s",
				name, info.Mode().Perm(), err, want, name, Risk)
		}
		log.Warn("every user of this machine could open a file of the store: its mode was changed", "file", name, "was", fmt.Sprintf("%04o", info.Mode().Perm()), "is", fmt.Sprintf("%04o", want))
	}
	return nil
}

// OpenTokens opens a file of tokens, which contains only their hashes. It rejects a file
// to which other users can add tokens of their own, unless that risk is accepted.
func OpenTokens(path string, acceptRisks []string) (*os.File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err == nil && info.Mode()&0o022 != 0 && info.Mode().IsRegular() && runtime.GOOS != "windows" && !slices.Contains(acceptRisks, Risk) {
		_ = file.Close() // it was only read
		return nil, fmt.Errorf("other users of this machine can add tokens to %s (mode %04o): run chmod go-w %s, or accept it with --accept-risk %s", path, info.Mode().Perm(), path, Risk)
	}
	return file, nil
}

// Read reads a file that contains a secret. It rejects a file that every user of the
// machine can use, or that the group can change, unless that risk is accepted. A group
// that can read the file is accepted: it is a service's group, as for private keys of
// certificates.
func Read(path string, acceptRisks []string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if mode := info.Mode(); (forOthers(mode) || mode&0o020 != 0 && runtime.GOOS != "windows") && mode.IsRegular() && !slices.Contains(acceptRisks, Risk) {
		return nil, fmt.Errorf("other users of this machine can use %s (mode %04o), which contains a secret: run chmod go-rwx %s, or accept it with --accept-risk %s",
			path, mode.Perm(), path, Risk)
	}
	return io.ReadAll(io.LimitReader(file, 1<<20))
}
