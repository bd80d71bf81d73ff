//go:build linux

package costs

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/internal/redisserver"
	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
)

var table = flag.Bool("table", false, "measure processor time, too, and print the tables of docs/scale.md and docs/benchmarks.md")

// systems are those of the rows, in their order.
var systems = []func() (*System, error){
	NewSQLite,
	func() (*System, error) { return NewPostgreSQL(false) },
	func() (*System, error) { return NewPostgreSQL(true) },
	NewMariaDB, NewRedis, NewNATS, NewEtcd, NewMemory,
}

func begin(t *testing.T, start func() (*System, error)) *System {
	t.Helper()
	s, err := start()
	if errors.Is(err, faults.ErrMissing) {
		needs.Service(t, "a server", err)
	}
	redisserver.Require(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestCosts_AKeyedRequestCostsWhatTheDocumentSays(t *testing.T) {
	text, err := os.ReadFile("../../../docs/stores.md")
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range Rows {
		t.Run(row.Name, func(t *testing.T) {
			if !strings.Contains(string(text), row.String()+"\n") {
				t.Errorf("docs/stores.md lacks the row\n%s", row)
			}
			s := begin(t, systems[i])
			r, err := s.Measure(t.Context(), 30, 300)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%+v", *r)
			got := Documented{
				Name: r.Name, Trips: r.Command.Trips, Writes: whole(r.Command.Writes), Bytes: row.Bytes, Log: row.Log, RepeatTrips: r.Repeat.Trips,
				ForeignTrips: r.ForeignRepeat.Trips, ForeignWrites: whole(r.ForeignRepeat.Writes), RepeatBytes: row.RepeatBytes,
			}
			if got != row {
				t.Errorf("measured\n%s, want\n%s", got, row)
			}
			within(t, "bytes of a command", float64(r.Command.ToServer+r.Command.ToClient), row.Bytes)
			within(t, "bytes of the log", r.Command.Log, row.Log)
			within(t, "bytes of a repeat", float64(max(r.Repeat.ToServer+r.Repeat.ToClient, r.ForeignRepeat.ToServer+r.ForeignRepeat.ToClient)), row.RepeatBytes)
		})
	}
}

func whole(n float64) int { return int(math.Round(n)) }

// within reports an error if the bound is too low, or more than three times too high.
func within(t *testing.T, what string, got float64, bound int) {
	t.Helper()
	if got > float64(bound) || got < float64(bound)/3 {
		t.Errorf("%s: %.0f, documented as at most %d", what, got, bound)
	}
}

func TestCosts_ProcessorTimeAndAModel(t *testing.T) {
	if !*table {
		t.Skip("run with -table to measure: the figures depend on the machine")
	}
	callers := []int{1, 4, 16, 64}
	size := func(n int) int { return 1000 + 100*n }
	var all []*Loads
	var costs []*Report
	for i, start := range systems {
		t.Run(Rows[i].Name, func(t *testing.T) { // after which its server ends
			s := begin(t, start)
			l, err := s.Run(t.Context(), callers, size)
			if err != nil {
				t.Fatal(err)
			}
			r, err := s.Measure(t.Context(), 30, 1000)
			if err != nil {
				t.Fatal(err)
			}
			all, costs = append(all, l), append(costs, r)
			t.Logf("%+v\n%+v", *l, *r)
		})
	}
	fmt.Println("| store | command, 1 caller: µs of client + server | 16 callers | 64 callers | repeat, 64 callers | the same key, 64 callers | bytes of log | bytes of data |")
	fmt.Println("|---|---:|---:|---:|---:|---:|---:|---:|")
	for i, l := range all {
		fmt.Printf("| %s | %s | %s | %s | %s | %s | %.0f | %.0f |\n", l.Name, times(l.Commands[0]), times(l.Commands[2]), times(l.Commands[3]), times(l.Repeats), times(l.OneKey),
			costs[i].Command.Log, costs[i].Command.Data)
	}
	fmt.Println("\n| store | batch | each | callers | commands per second | model | error | latency | model |")
	fmt.Println("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
	for _, l := range all {
		m := Fit(l.Commands[0], l.Commands[2])
		for _, c := range l.Commands {
			fmt.Printf("| %s | %s | %s | %d | %.0f | %.0f | %+.0f%% | %s | %s |\n", l.Name, millis(m.Batch), millis(m.Each), c.Callers,
				c.Rate(), m.Rate(c.Callers), 100*(m.Rate(c.Callers)/c.Rate()-1), millis(c.Latency()), millis(m.Latency(c.Callers)))
		}
	}
	fmt.Println("\n| store | a processor each for client and server, 64 callers | the same, 1 ms to the server | 1 caller, 1 ms |")
	fmt.Println("|---|---:|---:|---:|")
	for _, l := range all {
		near := l.idle()
		far := near
		far.Batch += time.Millisecond
		fmt.Printf("| %s | %.0f | %.0f | %.0f |\n", l.Name, near.Rate(64), far.Rate(64), far.Rate(1))
	}
}

// idle returns the model of a system on a machine that does nothing else: a batch of one takes
// the processor time of client and server and a flush, and client and server work on the
// requests of larger ones at the same time.
func (l *Loads) idle() Model {
	const flush = 100 * time.Microsecond
	one, many := l.Commands[0], l.Commands[len(l.Commands)-1]
	shared := max(many.Client, many.Server) / time.Duration(many.Requests) / requests
	alone := (one.Client+one.Server)/time.Duration(one.Requests)/requests + flush
	return Model{Batch: alone - shared, Each: shared}
}

func times(l Load) string {
	n := int64(l.Requests)
	return fmt.Sprintf("%d + %d", l.Client.Microseconds()/n, l.Server.Microseconds()/n)
}

func millis(d time.Duration) string { return fmt.Sprintf("%.2f ms", d.Seconds()*1e3) }
