package private

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPrivate_AStoreWhoseFileCannotBeTightenedIsRejectedWithTheCommand(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	rejects := func(string, os.FileMode) error { return os.ErrPermission } // as for the file of another user
	err := Tighten(path, rejects, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "chmod 600 "+path) || !strings.Contains(err.Error(), "--accept-risk file-mode") {
		t.Error(err)
	}
	var log bytes.Buffer
	if err := Tighten(path, os.Chmod, slog.New(slog.NewTextHandler(&log, nil))); err != nil || !strings.Contains(log.String(), "level=WARN") {
		t.Errorf("%v, log: %s", err, &log)
	}
}
