package sqlite

import (
	"fmt"
	"os"

	"github.com/onlyonce-go/onlyonce"
)

// A file is the database's, as it was when the store was opened.
type file struct {
	path string
	info os.FileInfo
}

func openedFile(path string) (file, error) {
	info, err := os.Stat(path)
	return file{path, info}, err
}

// check refuses to go on in a file that no other process, and not this one
// after a restart, would find again.
func (f *file) check() error {
	now, err := os.Stat(f.path)
	if err != nil || !os.SameFile(f.info, now) {
		return fmt.Errorf("%w: the file %s was deleted or replaced while it was open: put it back, or open the store again", onlyonce.ErrUnavailable, f.path)
	}
	return nil
}
