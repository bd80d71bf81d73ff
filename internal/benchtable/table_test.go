package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const output = `goos: linux
BenchmarkClaimAndSettle
BenchmarkClaimAndSettle/naive/256
BenchmarkClaimAndSettle/naive/256-2         	     600	    326721 ns/op	      3000 op/s	    2656 B/op	      49 allocs/op
BenchmarkClaimAndSettle/group/256
BenchmarkClaimAndSettle/group/256-2         	     600	     43552 ns/op	     24000 op/s	    3056 B/op	      51 allocs/op
BenchmarkAlone
BenchmarkAlone 	 10	 1.5 ns/op
BenchmarkClaimAndSettle/pgbench/256
    pgbench_test.go:58: pgbench is not installed
--- SKIP: BenchmarkClaimAndSettle/pgbench/256
BenchmarkRedis
    redis.go:7: redis-server is not available: not found
--- SKIP: BenchmarkRedis
PASS
`

func TestResults_AreReadFromTheOutputOfGoTest(t *testing.T) {
	r := newResults()
	r.read(output)
	for m, want := range map[metric]float64{
		{"ClaimAndSettle/naive/256", "op/s"}:      3000,
		{"ClaimAndSettle/group/256", "allocs/op"}: 51,
		{"Alone", "ns/op"}:                        1.5,
	} {
		if r.figures[m] != want {
			t.Errorf("%v is %v, want %v", m, r.figures[m], want)
		}
	}
	if len(r.figures) != 9 {
		t.Errorf("%d figures, want 9: %v", len(r.figures), r)
	}
	naive, group, gone := metric{"ClaimAndSettle/naive/256", "allocs/op"}, metric{"ClaimAndSettle/group/256", "allocs/op"}, metric{"Gone", "allocs/op"}
	for _, c := range []struct {
		name string
		row  row
		want float64
	}{
		{"ratio", throughput(row{}, "ClaimAndSettle/group/256", "ClaimAndSettle/naive/256", 8), 8},
		{"difference", added(row{}, group, naive, 1, ""), 2},
		{"amount", most(row{}, group, 1, ""), 51},
	} {
		if got, ok := r.result(c.row); !ok || got != c.want {
			t.Errorf("%s: the result is %v, %v; want %v", c.name, got, ok, c.want)
		}
	}
	for _, missing := range []row{cost(row{}, gone, naive, 8), cost(row{}, group, gone, 8), added(row{}, gone, naive, 1, ""), added(row{}, group, gone, 1, ""), most(row{}, gone, 1, "")} {
		if got, ok := r.result(missing); ok {
			t.Errorf("%+v has the result %v, although a benchmark is missing", missing, got)
		}
	}
}

func TestResults_SayWhyABenchmarkWasSkipped(t *testing.T) {
	r := newResults()
	r.read(output)
	for _, c := range []struct {
		row  row
		want string
	}{
		{throughput(row{}, "ClaimAndSettle/group/256", "ClaimAndSettle/pgbench/256", 1), "pgbench is not installed"},
		{throughput(row{}, "Redis/claim+settle/store/256", "Redis/claim+settle/naive/256", 1), "redis-server is not available: not found"},
		{throughput(row{}, "ClaimAndSettle/group/256", "ClaimAndSettle/naive/256", 1), ""},
	} {
		if got := r.reason(c.row); got != c.want {
			t.Errorf("%v and %v: the reason is %q, want %q", c.row.of, c.row.to, got, c.want)
		}
	}
}

func TestTable_SaysWhetherARowIsReached(t *testing.T) {
	least := throughput(row{subject: "SQLite", work: "256 callers", than: "one row at a time"}, "a", "b", 8)
	ratio := cost(row{subject: "Proxy", work: "replay", than: "ReverseProxy"}, metric{"a", "ns/op"}, metric{"b", "ns/op"}, 0.35)
	skipped := least
	skipped.missing = "there is no SQLite"
	got := table([]line{
		newLine(least, []float64{9, 7, 8}), newLine(least, []float64{7.99}), newLine(least, nil), newLine(skipped, nil),
		newLine(ratio, []float64{0.35, 0.36, 0.2}), newLine(ratio, []float64{0.36, 12.34, 123.4}), newLine(ratio, []float64{0.5, 0.1, 0.3, 0.2}),
		newLine(most(row{subject: "Guard", work: "replay"}, metric{"a", "ns/op"}, 1000, "ns"), []float64{1000.4, 561.25, 2}),
		newLine(added(row{subject: "Wrap", work: "replay", than: "bare"}, metric{"a", "allocs/op"}, metric{"b", "allocs/op"}, 1, "more"), []float64{0}),
	})
	_, got, _ = strings.Cut(got, "|---|\n")
	want := `| SQLite | 256 callers | one row at a time | 8.00 | 7.00 to 9.00 | at least 8.00 | reached |
| SQLite | 256 callers | one row at a time | 7.99 |  | at least 8.00 | **not reached** |
| SQLite | 256 callers | one row at a time |  |  | at least 8.00 | not measured |
| SQLite | 256 callers | one row at a time |  |  | at least 8.00 | not measured: there is no SQLite |
| Proxy | replay | ReverseProxy | 0.35 | 0.20 to 0.36 | at most 0.35 | reached |
| Proxy | replay | ReverseProxy | 12.3 | 0.36 to 123 | at most 0.35 | **not reached** |
| Proxy | replay | ReverseProxy | 0.25 | 0.10 to 0.50 | at most 0.35 | reached |
| Guard | replay |  | 561 ns | 2 ns to 1000 ns | at most 1000 ns | reached |
| Wrap | replay | bare | 0 more |  | at most 1 more | reached |
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestChart_HasABarForEachRatioThatWasMeasured(t *testing.T) {
	more := throughput(row{subject: "Redis & Co", work: "256 callers", than: "<scripts>"}, "a", "b", 3)
	less := cost(row{subject: "Proxy", work: "replay", than: "another"}, metric{}, metric{}, 0.5)
	text := svg([]line{
		newLine(more, []float64{8}), newLine(more, []float64{0.125}), newLine(more, nil),
		newLine(less, []float64{0.5}), newLine(most(row{}, metric{}, 1, ""), []float64{1}),
	})
	type bar struct{ x, width, colour string }
	var bars []bar
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "rect" {
			of := make(map[string]string)
			for _, a := range start.Attr {
				of[a.Name.Local] = a.Value
			}
			bars = append(bars, bar{of["x"], of["width"], of["fill"]})
		}
	}
	// From 1/8 to 8 there are six doublings, and 1 is in the middle of the 260 pixels.
	want := []bar{{"460.0", "130.0", colourHit}, {"330.0", "130.0", colourMissed}, {"416.7", "43.3", colourHit}}
	if !slices.Equal(bars, want) {
		t.Errorf("the bars are %v, want %v:\n%s", bars, want, text)
	}
}

// A benchmark that was renamed would be measured no more.
func TestRows_NameBenchmarksThatExist(t *testing.T) {
	declared := regexp.MustCompile(`(?m)^func Benchmark(\w+)\(`)
	for _, r := range rows {
		if r.goal <= 0 || r.than == "" && r.kind != amount {
			t.Errorf("%+v is not complete", r)
		}
		if r.missing != "" {
			continue
		}
		files, err := filepath.Glob(filepath.Join("../..", r.dir, "*_test.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no tests in %s: %v", r.dir, err)
		}
		there := make(map[string]bool)
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, found := range declared.FindAllStringSubmatch(string(text), -1) {
				there[found[1]] = true
			}
		}
		topLevel, _, _ := strings.Cut(r.pattern, "/")
		metrics := []metric{r.of, r.to}
		if r.kind == amount {
			metrics = metrics[:1]
		}
		for _, m := range metrics {
			if name, _, _ := strings.Cut(m.benchmark, "/"); !there[name] || !regexp.MustCompile(topLevel).MatchString("Benchmark"+name) {
				t.Errorf("%s: there is no Benchmark%s in %s, or %s does not match it", r, name, r.dir, r.pattern)
			}
		}
		if r.time == "" {
			t.Errorf("%s has no time", r)
		}
	}
}
