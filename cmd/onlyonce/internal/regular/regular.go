// Package regular opens files that are read again while a server runs.
package regular

import (
	"fmt"
	"io"
	"os"
)

// Check returns an error if there is anything but a regular file at path. Opening a pipe
// would wait for a writer, perhaps forever, and so would whatever waits for the reader.
func Check(path string) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file, and only a regular file can be reloaded", path)
	}
	return nil // other errors are reported when it is opened
}

// Open opens a regular file for reading.
func Open(path string) (*os.File, error) {
	if err := Check(path); err != nil {
		return nil, err
	}
	return os.Open(path)
}

// longest is how many bytes of a file Read reads.
const longest = 16 << 20

// Read returns the contents of a regular file.
func Read(path string) ([]byte, error) {
	file, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, longest+1))
	if err == nil && len(text) > longest {
		err = fmt.Errorf("%s has more than %d bytes: check the path", path, longest)
	}
	return text, err
}
