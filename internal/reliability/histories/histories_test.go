//go:build linux

package histories

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/internal/redisserver"
	"github.com/onlyonce-go/onlyonce/internal/reliability/dynamoserver"
	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
)

var (
	seedFlag = flag.Uint64("seed", uint64(time.Now().UnixNano()), "of all random choices")
	calls    = flag.Int("calls", 0, "of all stores together; 0: as many as CI has time for")
	table    = flag.Bool("table", false, "print the table of docs/reliability.md")
	picture  = flag.String("pictures", "", "directory for porcupine's pictures of histories with violations")
)

func TestMain(m *testing.M) {
	if Worker() || dynamoserver.Serve() {
		return
	}
	code := m.Run()
	removeShared()
	if *table {
		printTable()
	}
	os.Exit(code)
}

// shared is a directory for files that are created once for several tests.
var shared = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "onlyonce"); err == nil {
		err = os.Chmod(dir, 0o755) // other users run servers on copies of its files
	}
	removeShared = func() { _ = os.RemoveAll(dir) }
	return dir, err
})

var removeShared = func() {}

// backend creates a database on a server of the test's own.
func backend(t *testing.T, kind *faults.Kind) *Backend {
	t.Helper()
	dir, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	s, err := faults.New(kind, dir)
	if errors.Is(err, faults.ErrMissing) {
		needs.Service(t, kind.Name, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, s)
	b, err := NewBackend(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// callsInAll is the number of calls of all stores in CI, with those that DynamoDB makes only in a
// longer run.
const callsInAll = 5_000 + 40_000 + 2*10_000 + 3*14_000 + 4*1_000 + 4*8_000 + 10_000 + 2*2_000

// rows are the rows of the table.
var rows []*Report

func printTable() {
	fmt.Println("| store | calls | in doubt | histories | faults | violations | not decided | seed |")
	fmt.Println("|---|---:|---:|---:|---|---:|---:|---|")
	for _, r := range rows {
		var happened []string
		for _, name := range slices.Sorted(maps.Keys(r.Faults)) {
			happened = append(happened, fmt.Sprintf("%d %s", r.Faults[name], name))
		}
		fmt.Printf("| %s | %d | %d | %d | %s | %d | %d | %d |\n", r.Name, r.Calls, r.Doubtful, r.Histories, strings.Join(happened, ", "), r.Violations, len(r.Findings)-r.Violations, r.Seed)
	}
}

// scale returns the number of calls of a test, which makes callsPerStore calls in CI.
func scale(callsPerStore int) int {
	switch {
	case *calls > 0: // in the same proportions as in CI
		return int(int64(*calls) * int64(callsPerStore) / callsInAll)
	case raceDetector:
		return callsPerStore / 10
	}
	return callsPerStore
}

// closeAtEnd closes a server or a backend when the test ends.
func closeAtEnd(t *testing.T, c io.Closer) {
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// mustFindViolation executes a plan that must find a violation.
func mustFindViolation(t *testing.T, p Plan) {
	t.Helper()
	t.Logf("seed %d", p.Seed)
	r, err := Do(p)
	if err != nil {
		t.Fatal(err)
	}
	if r.Violations == 0 {
		t.Fatalf("not found in %d calls: %v", r.Calls, r.Findings)
	}
	t.Logf("found after %d calls, %v and %v", r.Calls, r.Faults, r.Took)
}

// mustBeLinearizable executes a plan that must find no violation.
func mustBeLinearizable(t *testing.T, p Plan) *Report {
	t.Helper()
	p.PictureDir = *picture
	t.Logf("%s: seed %d", p.Name, p.Seed)
	r, err := Do(p)
	if r != nil {
		for _, f := range r.Findings {
			if f.Undecided {
				t.Log(f.Text)
			} else {
				t.Error(f.Text)
			}
		}
		rows = append(rows, r)
		t.Logf("%s: %d calls, %d in doubt, in %d histories of at most %d, checked in %v at most; faults %v; %v", r.Name, r.Calls, r.Doubtful, r.Histories, r.Longest, r.Slowest, r.Faults, r.Took)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestHistories_InMemoryAreLinearizable(t *testing.T) {
	mustBeLinearizable(t, Memory(*seedFlag, scale(40_000)))
}

func TestHistories_OnSQLiteAreLinearizable(t *testing.T) {
	for name, moved := range map[string]bool{"while processes are stopped and killed": false, "while its clock is moved, too": true} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "records.db")
			p := SQLite(*seedFlag, scale(10_000), file)
			faults := []Fault{ProcessStops(2), ProcessKills(1)}
			if moved {
				p.Name += ", its clock moved"
				faults, p.Slack, p.ClockMoves = append(faults, SQLiteClock(4, file)), clockMoved, true
			}
			p.Faults = Inject(100*time.Millisecond, faults...)
			mustBeLinearizable(t, p)
		})
	}
}

// binaryLog is a MariaDB server with the binary log. Without it, MariaDB shows a commit before
// the commit is on disk. The stores flush before they replay a result, but not before they
// report that another attempt holds a command.
var binaryLog = faults.MariaDB.With("--log-bin=bin", "--sync-binlog=1", "--binlog-format=ROW")

// serverStores are the stores on servers.
var serverStores = []struct {
	name, store string
	kind        *faults.Kind
}{
	{"PostgreSQL by sqlstore", "postgres", faults.PostgreSQL},
	{"PostgreSQL by pgxstore", "pgxstore", faults.PostgreSQL},
	{"MariaDB by sqlstore", "mariadb", binaryLog},
}

func TestHistories_OnServersAreLinearizable(t *testing.T) {
	for _, s := range serverStores {
		t.Run(s.name, func(t *testing.T) {
			b := backend(t, s.kind)
			p := b.Plan(s.name, s.store, *seedFlag, scale(8_000))
			p.Faults = Inject(100*time.Millisecond, append(b.Faults(1), ProcessStops(4), ProcessKills(2))...)
			mustBeLinearizable(t, p)
		})
		t.Run(s.name+", its clock moved", func(t *testing.T) {
			b := backend(t, s.kind)
			p := b.Plan(s.name+", its clock moved", s.store, *seedFlag, scale(6_000))
			p.Slack, p.ClockMoves = clockMoved, true
			p.Faults = Inject(100*time.Millisecond, append(b.Faults(1), ProcessStops(2), ProcessKills(1), b.Clock(8))...)
			mustBeLinearizable(t, p)
		})
	}
}

// standbyBackend starts a server of the test's own and its standby. names is the server's
// synchronous_standby_names.
func standbyBackend(t *testing.T, names string) *StandbyBackend {
	t.Helper()
	dir, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	s, err := faults.New(faults.PostgreSQL, dir)
	if errors.Is(err, faults.ErrMissing) && os.Getenv("ONLYONCE_REQUIRE_SERVICES") == "" {
		t.Skipf("install %s: %v", faults.PostgreSQL.Name, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewStandbyBackend(s, names)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, b)
	return b
}

func TestHistories_OnPostgreSQLAreLinearizableThroughFailoversToASynchronousStandby(t *testing.T) {
	needs.Time(t)
	for _, s := range serverStores[:2] {
		t.Run(s.name, func(t *testing.T) {
			b := standbyBackend(t, "*")
			p := b.Plan(s.name+", its standby takes over", s.store, *seedFlag, scale(1_000))
			p.Faults = Inject(100*time.Millisecond, append(b.Faults(), ProcessStops(4), ProcessKills(2))...)
			mustBeLinearizable(t, p)
		})
	}
}

// An asynchronous standby lacks commits that it has not received.
func TestPlantedBugs_AnAsynchronousStandbyThatTakesOverIsFound(t *testing.T) {
	needs.Time(t)
	b := standbyBackend(t, "")
	p := b.Plan("PostgreSQL by pgxstore, its asynchronous standby takes over", "pgxstore", *seedFlag, 500_000)
	p.Faults = Inject(100*time.Millisecond, Fault{"failovers", 1, b.failover})
	mustFindViolation(t, p)
}

// replicaBackend starts a MariaDB server of the test's own and its replica. With a wait point,
// commits wait for the replica.
func replicaBackend(t *testing.T, waitPoint string) *ReplicaBackend {
	t.Helper()
	dir, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	kind := faults.Replicated
	if waitPoint != "" {
		kind = kind.With("--rpl-semi-sync-master-wait-point=" + waitPoint)
	}
	s, err := faults.New(kind, dir)
	if errors.Is(err, faults.ErrMissing) {
		needs.Service(t, kind.Name, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewReplicaBackend(s, dir, waitPoint != "")
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, b)
	return b
}

func TestHistories_OnMariaDBAreLinearizableThroughFailoversToASemiSynchronousReplica(t *testing.T) {
	needs.Time(t)
	for _, waitPoint := range []string{"AFTER_SYNC", "AFTER_COMMIT"} {
		t.Run(waitPoint, func(t *testing.T) {
			b := replicaBackend(t, waitPoint)
			p := b.Plan("MariaDB by sqlstore, its replica takes over, "+waitPoint, *seedFlag, scale(1_000))
			p.Faults = Inject(100*time.Millisecond, append(b.Faults(), ProcessStops(4), ProcessKills(2))...)
			mustBeLinearizable(t, p)
		})
	}
}

// An asynchronous replica lacks commits that it has not received.
func TestPlantedBugs_AnAsynchronousReplicaThatTakesOverIsFound(t *testing.T) {
	needs.Time(t)
	b := replicaBackend(t, "")
	p := b.Plan("MariaDB by sqlstore, its asynchronous replica takes over", *seedFlag, 500_000)
	p.Faults = Inject(100*time.Millisecond, Fault{"failovers", 1, func(r *Run, rng *rand.Rand) error {
		b.servers.CutOff()
		time.Sleep(4 * short) // commits do not wait for the replica
		return b.failover(r, rng)
	}})
	mustFindViolation(t, p)
}

// redisBackend starts a server of the test's own and, if replicated is true, a replica.
func redisBackend(t *testing.T, replicated bool) *RedisBackend {
	t.Helper()
	b, err := NewRedisBackend(replicated)
	redisserver.Require(t, err)
	closeAtEnd(t, b)
	return b
}

func TestHistories_OnRedisAreLinearizable(t *testing.T) {
	b := redisBackend(t, false)
	p := b.Plan("Redis", "", *seedFlag, scale(8_000))
	p.Faults = Inject(100*time.Millisecond, append(b.Faults(1), ProcessStops(4), ProcessKills(2))...)
	mustBeLinearizable(t, p)
}

func TestHistories_OnRedisAreLinearizableThroughFailoversIfTheReplicaConfirms(t *testing.T) {
	needs.Time(t)
	b := redisBackend(t, true)
	p := b.Plan("Redis, its replica takes over", "replicas=1&replica_timeout=2s", *seedFlag, scale(8_000))
	p.Faults = Inject(100*time.Millisecond, append(append(b.Faults(1), b.Failovers(4)...), ProcessStops(4), ProcessKills(2))...)
	mustBeLinearizable(t, p)
}

// If no replica has to confirm writes, a failover loses those in transit.
func TestPlantedBugs_AFailoverThatForgetsIsFound(t *testing.T) {
	needs.Time(t)
	b := redisBackend(t, true)
	p := b.Plan("Redis, its replica takes over unasked", "", *seedFlag, 500_000)
	p.Faults = Inject(100*time.Millisecond, b.Failovers(1)...)
	mustFindViolation(t, p)
}

// natsBackend starts servers of the test's own.
func natsBackend(t *testing.T, size int) *NATSBackend {
	t.Helper()
	b, err := NewNATSBackend(size)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, b)
	return b
}

func TestHistories_OnNATSAreLinearizable(t *testing.T) {
	b := natsBackend(t, 1)
	p := b.Plan("NATS", *seedFlag, scale(8_000))
	p.Faults = Inject(100*time.Millisecond, append(b.Faults(1), ProcessStops(4), ProcessKills(2))...)
	mustBeLinearizable(t, p)
}

func TestHistories_OnNATSAreLinearizableWhileLeadersChange(t *testing.T) {
	needs.Time(t)
	b := natsBackend(t, 3)
	p := b.Plan("NATS, three servers", *seedFlag, scale(2_000))
	p.Faults = Inject(200*time.Millisecond, append(b.Faults(2), b.Elections(6), ProcessStops(4), ProcessKills(2))...)
	mustBeLinearizable(t, p)
}

func TestPlantedBugs_ABackupThatIsRestoredIsFound(t *testing.T) {
	needs.Time(t)
	b := natsBackend(t, 1)
	restored, err := b.Backup(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := b.Plan("NATS, a backup is restored", *seedFlag, 500_000)
	p.Faults = Inject(100*time.Millisecond, restored)
	mustFindViolation(t, p)
}

// etcdBackend starts servers of the test's own.
func etcdBackend(t *testing.T, size int) *EtcdBackend {
	t.Helper()
	b, err := NewEtcdBackend(size)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, b)
	return b
}

func TestHistories_OnEtcdAreLinearizable(t *testing.T) {
	b := etcdBackend(t, 1)
	p := b.Plan("etcd", *seedFlag, scale(8_000))
	p.Faults = Inject(100*time.Millisecond, append(b.Faults(1), ProcessStops(4), ProcessKills(2))...)
	mustBeLinearizable(t, p)
}

func TestHistories_OnEtcdAreLinearizableWhileLeadersAreLost(t *testing.T) {
	needs.Time(t)
	b := etcdBackend(t, 3)
	p := b.Plan("etcd, three members", *seedFlag, scale(2_000))
	p.Faults = Inject(100*time.Millisecond, append(b.Faults(2), b.Elections(3), b.LeadersKilled(6), b.LeadersIsolated(6), ProcessStops(4), ProcessKills(2))...)
	mustBeLinearizable(t, p)
}

func TestPlantedBugs_AnEtcdSnapshotThatIsRestoredIsFound(t *testing.T) {
	needs.Time(t)
	b := etcdBackend(t, 1)
	restored, err := b.Backup(filepath.Join(t.TempDir(), "backup"))
	if err != nil {
		t.Fatal(err)
	}
	p := b.Plan("etcd, a snapshot is restored", *seedFlag, 500_000)
	p.Faults = Inject(time.Second, restored)
	mustFindViolation(t, p)
}
