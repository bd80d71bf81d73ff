package integration

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// The child process: this test's binary, run again.
var childJobs = map[string]func(t *testing.T, file string){
	"migrate": func(t *testing.T, file string) {
		waitForGo()
		if err := sqlstore.Migrate(t.Context(), openSQLiteDB(t, file)); err != nil {
			t.Fatal(err)
		}
		say("migrated")
	},
	"claim":     claimEverything,
	"run":       runForEver,
	"jetstream": consumeStream,
	"hold": func(t *testing.T, file string) {
		s, _ := openSQLite(t, file)
		_, _ = s.RunTx(t.Context(), claimOf("held"), func(ctx context.Context, tx *sql.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
			if _, err := tx.ExecContext(ctx, "INSERT INTO own (name) VALUES ('held')"); err != nil {
				t.Fatal(err)
			}
			say("inside")
			select {} // until it is killed
		})
	},
}

// TestSQLite_ChildProcess is the main function of child processes.
func TestSQLite_ChildProcess(t *testing.T) {
	if job, ok := childJobs[os.Getenv("SQLITE_CHILD")]; ok {
		job(t, os.Getenv("SQLITE_FILE"))
	}
}

// say tells the parent something.
func say(what string) { fmt.Println("child: " + what) }

func waitForGo() {
	say("ready")
	_, _ = io.ReadAll(os.Stdin)
}

// A child is a process that does a job on a file.
type child struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Scanner
	noise strings.Builder // the rest of its output
}

func startChild(t *testing.T, job, file string) *child {
	t.Helper()
	c := &child{t: t, cmd: exec.Command(os.Args[0], "-test.run=^TestSQLite_ChildProcess$", "-test.timeout=10m")}
	c.cmd.Env = append(os.Environ(), "SQLITE_CHILD="+job, "SQLITE_FILE="+file)
	c.cmd.Stderr = os.Stderr
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.stdin, c.lines = stdin, bufio.NewScanner(stdout)
	t.Cleanup(c.kill)
	return c
}

// hear returns the next line of the child.
func (c *child) hear() (what string, ok bool) {
	for c.lines.Scan() {
		if what, ok := strings.CutPrefix(c.lines.Text(), "child: "); ok {
			return what, true
		}
		c.noise.WriteString(c.lines.Text() + "\n")
	}
	return "", false
}

func (c *child) wants(what string) {
	c.t.Helper()
	if said, _ := c.hear(); said != what {
		c.t.Fatalf("the child said %q, want %q\n%s", said, what, &c.noise)
	}
}

// kill ends the child as kill -9 does.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	for c.lines.Scan() {
		continue
	}
	_ = c.cmd.Wait() // it was killed
}

func (c *child) ends() {
	c.t.Helper()
	for c.lines.Scan() {
		continue
	}
	if err := c.cmd.Wait(); err != nil {
		c.t.Errorf("the child: %v", err)
	}
}

func TestSQLite_ProcessesThatMigrateAtOnceBothSucceed(t *testing.T) {
	for range 5 {
		file := filepath.Join(t.TempDir(), "records.db")
		children := []*child{startChild(t, "migrate", file), startChild(t, "migrate", file), startChild(t, "migrate", file)}
		for _, c := range children {
			c.wants("ready")
		}
		for _, c := range children {
			c.stdin.Close()
		}
		for _, c := range children {
			c.wants("migrated")
			c.ends()
		}
	}
}

const racedKeys = 300

// claimEverything claims every key, and says which it was given. It begins
// together with others.
func claimEverything(t *testing.T, file string) {
	s, _ := openSQLite(t, file)
	waitForGo()
	var all sync.WaitGroup
	var mu sync.Mutex
	for caller := range 8 {
		all.Go(func() {
			for i := range racedKeys {
				c := claimOf(fmt.Sprint((i + caller*37) % racedKeys))
				r, err := s.Claim(t.Context(), c)
				if err != nil {
					t.Errorf("claim: %v", err)
				}
				if r.Owner == c.Owner {
					mu.Lock()
					say("won " + c.ID.Key)
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	say("done")
}

func TestSQLite_OfProcessesThatRaceForACommandOneGetsIt(t *testing.T) {
	file := migrated(t)
	var children []*child
	for range 3 {
		c := startChild(t, "claim", file)
		c.wants("ready")
		children = append(children, c)
	}
	for _, c := range children {
		c.stdin.Close()
	}
	winners := make(map[string]int)
	for _, c := range children {
		wins := 0
		for said, _ := c.hear(); said != "done"; said, _ = c.hear() {
			key, ok := strings.CutPrefix(said, "won ")
			if !ok {
				t.Fatalf("the child said %q", said)
			}
			winners[key]++
			wins++
		}
		c.ends()
		t.Logf("one process was given %d commands", wins)
	}
	for i := range racedKeys {
		if n := winners[fmt.Sprint(i)]; n != 1 {
			t.Errorf("command %d was given %d times", i, n)
		}
	}
}

func TestSQLite_ProcessKilledInsideAFunctionLeavesNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "records.db")
	p := newPlaceIn(t, file)
	c := startChild(t, "hold", file)
	c.wants("inside")
	c.kill()
	p.wants("held", 0, "")
	if _, err := p.store.RunTx(t.Context(), claimOf("held"), p.inserts("held")); err != nil {
		t.Fatal(err)
	}
	p.wants("held", 1, onlyonce.StateCompleted)
}

// runForEver runs functions from many callers, and says which ones returned.
func runForEver(t *testing.T, file string) {
	p := newPlaceIn(t, file)
	var mu sync.Mutex
	for caller := range 16 {
		go func() {
			for i := 0; ; i++ {
				key := fmt.Sprint(os.Getpid(), " ", caller, " ", i)
				if _, err := p.store.RunTx(t.Context(), claimOf(key), p.inserts(key)); err != nil {
					t.Errorf("run: %v", err)
				}
				mu.Lock()
				say(key)
				mu.Unlock()
			}
		}()
	}
	select {} // until it is killed
}

func TestSQLite_AProcessKilledAtAnyMomentKeepsWhatItReturnedAndHalvesNothing(t *testing.T) {
	needs.Time(t)
	file := filepath.Join(t.TempDir(), "records.db")
	p := newPlaceIn(t, file)
	answered := 0
	for range 20 {
		c := startChild(t, "run", file)
		last := rand.IntN(400)
		for range last {
			key, ok := c.hear()
			if !ok {
				t.Fatal("the child ended")
			}
			answered++
			p.wants(key, 1, onlyonce.StateCompleted)
		}
		c.kill()
	}
	count := func(query string) (n int) {
		t.Helper()
		if err := p.db.QueryRow(query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	rows := count("SELECT count(*) FROM own")
	records := count("SELECT count(*) FROM onlyonce_records WHERE state = 'completed'")
	pairs := count("SELECT count(*) FROM own JOIN onlyonce_records ON name = idem_key WHERE state = 'completed'")
	if rows != records || rows != pairs || rows < answered {
		t.Errorf("%d answers, %d rows, %d records, %d pairs of them", answered, rows, records, pairs)
	}
	t.Logf("%d answers were read before the kills, %d commands were committed", answered, rows)
}

// patiently repeats the request when others had the file for all of the five seconds that
// a store waits for it. No writer may be told before that it is busy.
func patiently(ask func() error) error {
	for {
		began := time.Now()
		err := ask()
		if err == nil || !strings.Contains(err.Error(), "locked") || time.Since(began) < 5*time.Second {
			return err
		}
	}
}

func TestSQLite_WritersOfManyPoolsAreNeverBusy(t *testing.T) {
	file := migrated(t)
	var all sync.WaitGroup
	var mu sync.Mutex
	fences := make(map[string][]int64)
	for writer := range 8 {
		s, _ := openSQLite(t, file)
		all.Go(func() {
			for i := range 100 {
				c := claimOf(fmt.Sprint(i % 10))
				c.Lease = time.Nanosecond // it has lapsed when the next writer comes
				var r onlyonce.Record
				err := patiently(func() (err error) {
					r, err = s.Claim(t.Context(), c)
					return err
				})
				if err != nil {
					t.Errorf("writer %d: %v", writer, err)
					return
				}
				if r.Owner != c.Owner {
					continue
				}
				mu.Lock()
				fences[c.ID.Key] = append(fences[c.ID.Key], r.Fence)
				mu.Unlock()
				err = patiently(func() error {
					return s.Settle(t.Context(), onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}, onlyonce.Settlement{State: onlyonce.StateFailed})
				})
				if err != nil && !errors.Is(err, onlyonce.ErrLost) {
					t.Errorf("writer %d: %v", writer, err)
				}
			}
		})
	}
	all.Wait()
	for key, given := range fences {
		seen := make(map[int64]bool)
		for _, f := range given {
			if seen[f] {
				t.Errorf("command %s: fence %d was given twice", key, f)
			}
			seen[f] = true
		}
	}
}
