package doctor

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
)

func TestDoctor_PrintsFindingsAndFails(t *testing.T) {
	var out strings.Builder
	err := diagnosis(&out, []onlyonce.Finding{{Name: "a", Problem: "b", Fix: "c"}, {Name: "d", Problem: "e", Fix: "f"}}, "")
	if err == nil || err.Error() != "findings: 2" {
		t.Errorf("error %v", err)
	}
	if want := "a: b; c\nd: e; f\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}

func TestDoctor_PrintsNothingThatATerminalInterprets(t *testing.T) {
	var out strings.Builder
	if err := diagnosis(&out, nil, serverName("redis_version:7.0\x1b]0;title\a\r\n")+"\n"+classRedis); err != nil {
		t.Fatal(err)
	}
	if want := "no findings\n" + `Redis 7.0\x1b]0;title\a` + "\n" + classRedis + "\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}

func TestDoctor_FindsWhatAStoreIsRejectedFor(t *testing.T) {
	for setting, want := range map[string]string{
		"_synchronous=FULL":               "",
		"_pragma=query_only(1)":           "read-only",
		"_pragma=locking_mode(exclusive)": "locking-mode",
		"_synchronous=OFF":                "synchronous",
	} {
		u, err := storeurl.Parse("sqlite:" + filepath.Join(t.TempDir(), "a.db"))
		if err != nil {
			t.Fatal(err)
		}
		if store, err := u.OpenMigrated(t.Context(), nil); err != nil || store.Close() != nil {
			t.Fatal(err)
		}
		db, err := sql.Open("sqlite", strings.Replace(u.DSN(false), "_synchronous=FULL", setting, 1))
		if err != nil {
			t.Fatal(err)
		}
		findings, err := examine(context.Background(), u, db)
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		if want == "" && len(findings) > 0 || want != "" && (len(findings) != 1 || findings[0].Name != want) || err != nil {
			t.Errorf("%q: found %v (%v), want %s", setting, findings, err, want)
		}
		for _, f := range findings {
			if f.Problem == "" || f.Fix == "" || strings.Contains(f.Problem, ";") {
				t.Errorf("%q: found %+v", setting, f)
			}
		}
	}
}

func TestDoctor_FindsThatAFileCanNotBeWritten(t *testing.T) {
	u, err := storeurl.Parse("sqlite:" + filepath.Join(t.TempDir(), "a.db"))
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", u.DSN(true)+"&_pragma=query_only(1)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	_, rejected := db.Exec("CREATE TABLE t (a)")
	found, err := orReadOnly(fmt.Errorf("open: %w", errors.Join(rejected, nil)))
	if err != nil || len(found) != 1 || found[0].Name != "read-only" || found[0].Fix == "" {
		t.Errorf("%v is %v, %v", rejected, found, err)
	}
	if found, err := orReadOnly(context.Canceled); err == nil || len(found) > 0 {
		t.Errorf("another error is %v, %v", found, err)
	}
}

func TestRejections_AnErrorThatWrapsNothingIsNoFinding(t *testing.T) {
	err := fmt.Errorf("open: %w", &net.DNSError{Err: "no such host", Name: "nohost.invalid"})
	if found := rejections(err); len(found) != 0 {
		t.Errorf("found %v", found)
	}
}
