//go:build linux

package rounds

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/internal/redisserver"
	"github.com/onlyonce-go/onlyonce/internal/reliability/dynamoserver"
	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
)

var (
	seedFlag = flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the faults")
	table    = flag.Bool("table", false, "print the table of docs/reliability.md")
	rounds   = flag.Int("rounds", 1, "of each store, in which its server is killed and its connections are cut")
)

func TestMain(m *testing.M) {
	if dynamoserver.Serve() {
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
	fmt.Println("| store | rounds | commands | sent | servers killed | connections cut | held | not recorded | lost | doubled | responses that differ | seed |")
	fmt.Println("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|")
	for _, r := range rows {
		fmt.Printf("| %s | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d |\n", r.Name, r.Rounds, r.Commands, r.Sent, r.Kills, r.Cuts, r.Held, r.Unstored,
			r.Lost, r.Doubled, r.Differing, r.Seed)
	}
}

// runRounds starts the servers of a store, and executes the plan on them.
func runRounds(t *testing.T, name string, start func() (System, error)) *Report {
	t.Helper()
	s, err := start()
	if errors.Is(err, faults.ErrMissing) {
		needs.Service(t, name, err)
	}
	redisserver.Require(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Logf("seed %d", *seedFlag)
	r, err := Do(Plan{Name: name, Seed: *seedFlag, System: s, Rounds: *rounds})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", *r)
	rows = append(rows, r)
	return r
}

const galeraName = "MariaDB by sqlstore, another node of Galera takes over"

func TestRounds_AStoreThatPromisesItLosesAndDoublesNothing(t *testing.T) {
	needs.Time(t)
	for _, p := range []struct {
		name  string
		start func() (System, error)
	}{
		{"PostgreSQL by pgxstore", func() (System, error) { return NewPostgreSQL(true) }},
		{"PostgreSQL by sqlstore", func() (System, error) { return NewPostgreSQL(false) }},
		{"PostgreSQL by pgxstore, a synchronous standby takes over", func() (System, error) { return NewStandby(true, true) }},
		{"PostgreSQL by sqlstore, a synchronous standby takes over", func() (System, error) { return NewStandby(false, true) }},
		{"MariaDB by sqlstore", NewMariaDB},
		{"MariaDB by sqlstore, a semi-synchronous replica takes over", NewReplica},
		{galeraName, NewGalera},
		{"Redis", NewRedis},
		{"Redis behind Sentinel, `replicas=1`", func() (System, error) { return NewSentinel(1, 1) }},
		{"Redis Cluster, `replicas=1`", NewCluster},
		{"NATS", func() (System, error) { return NewNATS(1) }},
		{"NATS, three servers", func() (System, error) { return NewNATS(3) }},
		{"etcd", func() (System, error) { return NewEtcd(1) }},
		{"etcd, three members", func() (System, error) { return NewEtcd(3) }},
		{"DynamoDB (a fake)", NewDynamoDB},
	} {
		t.Run(p.name, func(t *testing.T) {
			if p.name == galeraName && *rounds == 1 {
				t.Skip("run make ledger: a node that joins again takes longer than CI has time for")
			}
			r := runRounds(t, p.name, p.start)
			if r.Lost+r.Doubled+r.Differing > 0 {
				t.Errorf("%d lost, %d doubled, %d differ:\n%s", r.Lost, r.Doubled, r.Differing, strings.Join(r.Findings, "\n"))
			}
		})
	}
}

// These servers confirm a write before their replica has received it. The test also shows that
// the comparison finds lost commands.
func TestRounds_AFailoverWithoutConfirmedReplicasLosesAndDoubles(t *testing.T) {
	needs.Time(t)
	for _, p := range []struct {
		name  string
		start func() (System, error)
	}{
		{"PostgreSQL by pgxstore, an asynchronous standby takes over", func() (System, error) { return NewStandby(true, false) }},
		{"Redis behind Sentinel, `replicas=0`", func() (System, error) { return NewSentinel(0, 16<<10) }},
	} {
		t.Run(p.name, func(t *testing.T) {
			r := runRounds(t, p.name, p.start)
			if r.Lost+r.Doubled == 0 {
				t.Errorf("nothing was lost or doubled in %d failovers: the guarantee is stronger than documented, or the comparison is wrong", r.Kills)
			}
		})
	}
}
