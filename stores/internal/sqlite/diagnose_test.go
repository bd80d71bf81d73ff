package sqlite

import (
	"strings"
	"testing"
)

func TestDiagnose_FindsAFileOnANetworkFileSystem(t *testing.T) {
	was := fileSystemOf
	t.Cleanup(func() { fileSystemOf = was })
	fileSystemOf = func(dir string) string {
		if dir == "/mnt/share" {
			return "NFS"
		}
		return ""
	}
	if f := findFileSystem("/mnt/share/records.db"); f == nil || f.Name != riskFileSystem || !strings.Contains(f.Problem, "NFS") {
		t.Errorf("found %v", f)
	}
	for _, file := range []string{"/var/lib/records.db", ""} {
		if f := findFileSystem(file); f != nil {
			t.Errorf("found %v of the file %q", f, file)
		}
	}
}
