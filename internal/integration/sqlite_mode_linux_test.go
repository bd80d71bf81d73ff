package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// openFolders lets every user into the folders above a file, which t.TempDir does
// not.
func openFolders(t *testing.T, file string) {
	t.Helper()
	for dir := filepath.Dir(file); dir != filepath.Clean(os.TempDir()) && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSQLite_AFileThatEveryUserCanReadIsFoundAndNotRejected(t *testing.T) {
	file := migrated(t)
	diagnosed := func() (findings []onlyonce.Finding) {
		db := openSQLiteDB(t, file)
		defer db.Close()
		s, err := sqlstore.Open(t.Context(), db, sqlstore.Config{PurgeEvery: sqlstore.NeverPurge})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if findings, err = s.Diagnose(t.Context()); err != nil {
			t.Fatal(err)
		}
		return findings
	}
	for _, c := range []struct {
		mode  os.FileMode
		open  bool // the folders above it
		found bool
	}{{0o644, false, false}, {0o644, true, true}, {0o606, true, true}, {0o660, true, false}, {0o600, true, false}} {
		if err := os.Chmod(file, c.mode); err != nil {
			t.Fatal(err)
		}
		if c.open {
			openFolders(t, file)
		}
		got := diagnosed()
		if !c.found {
			if len(got) > 0 {
				t.Errorf("mode %o, open folders %t: %v", c.mode, c.open, got)
			}
			continue
		}
		if len(got) != 1 || got[0].Name != "file-mode" || !strings.Contains(got[0].Fix, "chmod o-rwx "+file) {
			t.Errorf("mode %o: %v", c.mode, got)
		}
	}
	db := openSQLiteDB(t, file)
	s, err := sqlstore.Open(t.Context(), db, sqlstore.Config{AcceptRisks: []string{"file-mode"}})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}
