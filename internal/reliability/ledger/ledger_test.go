//go:build linux

package ledger

import (
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
)

var (
	seedFlag = flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the faults")
	table    = flag.Bool("table", false, "print the table of docs/reliability.md")
	kills    = flag.Int("kills", 0, "of processes, in all; 0: as many as there is time for in CI")
)

func TestMain(m *testing.M) {
	if Worker() {
		return
	}
	code := m.Run()
	if *table {
		printTable()
	}
	os.Exit(code)
}

// rows are the rows of the table.
var rows []*Report

func printTable() {
	fmt.Println("| store | commands | sent | processes killed | servers killed | connections cut | processes stopped | held | not recorded | lost | doubled | responses that differ | contexts that outlived a lease | doubled without protection | seed |")
	fmt.Println("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|")
	for _, r := range rows {
		fmt.Printf("| %s | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d |\n", r.Name, r.Commands, r.Sent, r.Kills, r.Crashes, r.Cuts, r.Stops,
			r.Held, r.Unstored, r.Lost, r.Doubled, r.Differing, r.Outlived, r.ControlDoubled, r.Seed)
	}
}

// plans has the stores to test.
var plans = []struct {
	name, store string
	kind        *faults.Kind // nil: a file
}{
	{"SQLite", "sqlite", nil},
	{"PostgreSQL by sqlstore", "postgres", faults.PostgreSQL},
	{"PostgreSQL by pgxstore", "pgxstore", faults.PostgreSQL},
	{"MariaDB by sqlstore", "mariadb", faults.MariaDB},
}

// plan creates the database of a store, and returns the plan for its test.
func plan(t *testing.T, shared, name, store string, kind *faults.Kind) Plan {
	t.Helper()
	p := Plan{Name: name, Seed: *seedFlag, Kills: killsInCI, Crashes: 1, Every: 60 * time.Millisecond, Clients: 48}
	if *kills > 0 {
		p.Kills, p.Crashes = (*kills+len(plans)-1)/len(plans), max(1, *kills/len(plans)/50)
	}
	p.Place = Place{Store: store, DSN: "file:" + filepath.Join(t.TempDir(), "records.db") + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)"}
	if kind == nil {
		return p
	}
	s, err := faults.New(kind, shared)
	if errors.Is(err, faults.ErrMissing) {
		needs.Service(t, kind.Name, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	database := "ledger_" + strings.ToLower(rand.Text())
	if _, err := s.Admin.Exec("CREATE DATABASE " + database); err != nil {
		t.Fatal(err)
	}
	p.Server, p.Place.DSN = s, kind.DSN(s.Port, database)
	return p
}

func TestLedger_NoCommandIsLostOrDoubledByKills(t *testing.T) {
	needs.Time(t)
	shared := t.TempDir()
	for dir := shared; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil { // other users run servers on copies of its files
			t.Fatal(err)
		}
	}
	for _, s := range plans {
		t.Run(s.name, func(t *testing.T) {
			p := plan(t, shared, s.name, s.store, s.kind)
			t.Logf("seed %d", p.Seed)
			r, err := Do(p)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%+v", *r)
			rows = append(rows, r)
			if r.Lost+r.Doubled+r.Differing > 0 {
				t.Errorf("%d lost, %d doubled, %d differ:\n%s", r.Lost, r.Doubled, r.Differing, strings.Join(r.Findings, "\n"))
			}
			if r.Outlived > 0 {
				t.Errorf("%d contexts outlived their lease", r.Outlived)
			}
			if r.ControlDoubled == 0 {
				t.Errorf("without protection, no command ran twice in %d kills, so the test shows nothing", r.Kills)
			}
		})
	}
}
