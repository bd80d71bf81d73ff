package cryptstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
)

// KeysFromFile returns the keys in a file of the form that ParseKeys reads. The file is read
// again whenever the keys are asked for, so a key can be added while the program runs. On
// systems other than Windows, a file that other users can use, or that its group can change,
// is an error.
func KeysFromFile(path string) (Keys, error) {
	f := keyFile(path)
	if _, err := f.read(); err != nil {
		return nil, err
	}
	return f, nil
}

type keyFile string

// Key reads the file and returns one of its keys.
func (f keyFile) Key(ctx context.Context, id string) (Key, error) {
	s, err := f.read()
	if err != nil {
		return Key{}, err
	}
	return s.Key(ctx, id)
}

// longestKeyFile is how many bytes a file of keys may have.
const longestKeyFile = 1 << 20

func (f keyFile) read() (*KeySet, error) {
	file, err := os.Open(string(f))
	if err != nil {
		return nil, fmt.Errorf("cryptstore: open the keys: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("cryptstore: open the keys: %w", err)
	}
	if mode := info.Mode(); mode&0o027 != 0 && mode.IsRegular() && runtime.GOOS != "windows" {
		return nil, fmt.Errorf("cryptstore: other users of this machine can use %s (mode %04o), which holds keys: run chmod go-rwx %s", f, mode.Perm(), f)
	}
	text, err := io.ReadAll(io.LimitReader(file, longestKeyFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("cryptstore: read the keys: %w", err)
	case len(text) > longestKeyFile:
		return nil, fmt.Errorf("cryptstore: read the keys: %s has more than %d bytes", f, longestKeyFile)
	}
	s, err := ParseKeys(string(text))
	if err != nil {
		return nil, fmt.Errorf("%w (in %s)", err, f)
	}
	return s, nil
}

// KeysFromEnv returns the keys in an environment variable of the form that ParseKeys reads,
// such as "current b; a 3f…; b 9c…".
func KeysFromEnv(name string) (*KeySet, error) {
	text := os.Getenv(name)
	if text == "" {
		return nil, errors.New("cryptstore: the environment variable " + name + " is not set: set it to the keys")
	}
	s, err := ParseKeys(text)
	if err != nil {
		return nil, fmt.Errorf("%w (in the environment variable %s)", err, name)
	}
	return s, nil
}
