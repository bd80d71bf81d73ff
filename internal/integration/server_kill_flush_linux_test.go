package integration

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// A flushGate holds back the flushes of a server's log while it is shut.
type flushGate struct {
	t    *testing.T
	file string
}

// behindGate makes a server flush its log only while the gate is open.
func behindGate(t *testing.T, s *ownServer) *flushGate {
	t.Helper()
	cc := needs.Program(t, "cc")
	library := filepath.Join(s.Dir, "flush.so")
	if out, err := exec.Command(cc, "-shared", "-fPIC", "-O1", "-o", library, "testdata/flush.c", "-ldl").CombinedOutput(); err != nil {
		t.Fatalf("compile: %v\n%s", err, out)
	}
	g := &flushGate{t: t, file: filepath.Join(s.Dir, "hold")}
	s.Env = append(os.Environ(), "LD_PRELOAD="+library, "ONLYONCE_HOLD_FLUSH="+g.file)
	s.restart(t)
	t.Cleanup(g.open)
	return g
}

func (g *flushGate) shut() {
	if err := os.WriteFile(g.file, nil, 0o600); err != nil {
		g.t.Fatal(err)
	}
}

func (g *flushGate) open() {
	if err := os.Remove(g.file); err != nil && !errors.Is(err, os.ErrNotExist) {
		g.t.Error(err)
	}
}

// gatedSettlement claims a command and settles it on a server that does not
// flush: the settlement is under way until the gate is opened.
func gatedSettlement(t *testing.T, g *flushGate, s *sqlstore.Store) (c onlyonce.Claim, settled chan error) {
	t.Helper()
	c = serverClaim("k")
	r, err := s.Claim(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	settled = make(chan error, 1)
	g.shut()
	go func() {
		settled <- s.Settle(t.Context(), onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}, done("made"))
	}()
	return c, settled
}

// asked has another caller's result for the same command.
type asked struct {
	record onlyonce.Record
	err    error
}

// ask asks by each way in which a store gives a response away.
func ask(t *testing.T, s *sqlstore.Store, c onlyonce.Claim) map[string]chan asked {
	ways := map[string]func() (onlyonce.Record, error){
		"Claim":  func() (onlyonce.Record, error) { return s.Claim(t.Context(), serverClaim(c.ID.Key)) },
		"Lookup": func() (onlyonce.Record, error) { return s.Lookup(t.Context(), c.ID) },
		"RunTx": func() (onlyonce.Record, error) {
			return s.RunTx(t.Context(), serverClaim(c.ID.Key), func(context.Context, *sql.Tx, onlyonce.Record) (onlyonce.Settlement, error) {
				return onlyonce.Settlement{}, errors.New("it ran")
			})
		},
	}
	answers := make(map[string]chan asked)
	for name, way := range ways {
		got := make(chan asked, 1)
		answers[name] = got
		go func() {
			r, err := way()
			got <- asked{r, err}
		}()
	}
	return answers
}

// InnoDB shows a commit before it has flushed it.
func TestServerKill_NoResultOfMariaDBIsReturnedBeforeItIsOnDisk(t *testing.T) {
	server := newOwnServer(t, faults.MariaDB)
	gate := behindGate(t, server)
	d := server.newDatabase(t)
	s := openOn(t, d.migrated(t))
	db := d.pool(t)
	other := openOn(t, d.pool(t))
	c, settled := gatedSettlement(t, gate, s)
	eventually(t, "the settlement is seen", func() bool {
		var state string
		if err := db.QueryRow("SELECT state FROM onlyonce_records").Scan(&state); err != nil {
			t.Fatal(err)
		}
		return state == "completed"
	})
	answers := ask(t, other, c)
	eventually(t, "all callers wait for the disk", func() bool {
		for name, got := range answers {
			if len(got) > 0 {
				a := <-got
				t.Fatalf("%s answered %+v, %v before it was flushed", name, a.record, a.err)
			}
		}
		var waiting int
		if err := db.QueryRow("SELECT count(*) FROM information_schema.processlist WHERE info LIKE 'INSERT INTO %onlyonce_flush%' AND id <> CONNECTION_ID()").Scan(&waiting); err != nil {
			t.Fatal(err)
		}
		return waiting > 0
	})
	gate.open()
	if err := <-settled; err != nil {
		t.Errorf("settle: %v", err)
	}
	for name, got := range answers {
		if a := <-got; a.err != nil || string(a.record.Result.Body) != "made" {
			t.Errorf("%s answered %+v, %v", name, a.record, a.err)
		}
	}
	gate.shut() // a result that is known to be on disk is replayed without a flush
	for name, got := range ask(t, other, c) {
		select {
		case a := <-got:
			if a.err != nil || string(a.record.Result.Body) != "made" {
				t.Errorf("%s answered %+v, %v", name, a.record, a.err)
			}
		case <-time.After(answerLimit):
			t.Errorf("%s waits for a flush again", name)
		}
	}
}

// PostgreSQL flushes a commit before it shows it.
func TestServerKill_NoResultOfPostgreSQLIsReturnedBeforeItIsOnDisk(t *testing.T) {
	server := newOwnServer(t, faults.PostgreSQL)
	gate := behindGate(t, server)
	d := server.newDatabase(t)
	s := openOn(t, d.migrated(t))
	db := d.pool(t)
	other := openOn(t, d.pool(t))
	c, settled := gatedSettlement(t, gate, s)
	eventually(t, "the settlement waits for the disk", func() bool {
		var waiting int
		// or for the WAL writer, which waits for the disk, too
		if err := db.QueryRow("SELECT count(*) FROM pg_stat_activity WHERE wait_event IN ('WALSync', 'WALWrite') AND backend_type = 'client backend'").Scan(&waiting); err != nil {
			t.Fatal(err)
		}
		return waiting > 0
	})
	answers := ask(t, other, c)
	if a := <-answers["Lookup"]; a.err != nil || a.record.State != onlyonce.StateProcessing {
		t.Errorf("Lookup answered %+v, %v before it was flushed", a.record, a.err)
	}
	gate.open()
	if err := <-settled; err != nil {
		t.Errorf("settle: %v", err)
	}
	delete(answers, "Lookup")
	for name, got := range answers { // which wait for the row's lock, or see a running command
		if a := <-got; a.err != nil || a.record.State == onlyonce.StateCompleted && string(a.record.Result.Body) != "made" {
			t.Errorf("%s answered %+v, %v", name, a.record, a.err)
		}
	}
	if r, err := other.Lookup(t.Context(), c.ID); err != nil || string(r.Result.Body) != "made" {
		t.Errorf("after the flush: %+v, %v", r, err)
	}
}
