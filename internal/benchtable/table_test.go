package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const output = `goos: linux
BenchmarkClaimAndSettle/naive/256-2         	     600	    326721 ns/op	      3000 op/s	    2656 B/op	      49 allocs/op
BenchmarkClaimAndSettle/group/256-2         	     600	     43552 ns/op	     24000 op/s	    3056 B/op	      50 allocs/op
BenchmarkAlone 	 10	 1.5 ns/op
PASS
`

func TestResults_AreReadFromTheOutputOfGoTest(t *testing.T) {
	r := make(results)
	r.read(output)
	for m, want := range map[metric]float64{
		{"ClaimAndSettle/naive/256", "op/s"}:      3000,
		{"ClaimAndSettle/group/256", "allocs/op"}: 50,
		{"Alone", "ns/op"}:                        1.5,
	} {
		if r[m] != want {
			t.Errorf("%v is %v, want %v", m, r[m], want)
		}
	}
	if len(r) != 9 {
		t.Errorf("%d figures, want 9: %v", len(r), r)
	}
	faster := throughput(row{}, "ClaimAndSettle/group/256", "ClaimAndSettle/naive/256", 8)
	if ratio, ok := r.ratio(faster); !ok || ratio != 8 {
		t.Errorf("ratio %v, %v", ratio, ok)
	}
	for _, missing := range []row{throughput(row{}, "Gone", "ClaimAndSettle/naive/256", 8), throughput(row{}, "ClaimAndSettle/group/256", "Gone", 8)} {
		if ratio, ok := r.ratio(missing); ok {
			t.Errorf("%+v has the ratio %v, although a benchmark is missing", missing, ratio)
		}
	}
}

func TestTable_SaysWhetherARowIsReached(t *testing.T) {
	least := throughput(row{subject: "SQLite", work: "256 callers", than: "one row at a time"}, "a", "b", 8)
	most := cost(row{subject: "Proxy", work: "replay", than: "ReverseProxy"}, metric{"a", "ns/op"}, metric{"b", "ns/op"}, 0.35)
	got := table([]line{
		newLine(least, []float64{9, 7, 8}), newLine(least, []float64{7.99}), newLine(least, nil),
		newLine(most, []float64{0.35, 0.36, 0.2}), newLine(most, []float64{0.36, 12.34, 123.4}),
	})
	_, got, _ = strings.Cut(got, "|---|\n")
	want := `| SQLite | 256 callers | one row at a time | 8.00 | 7.00 to 9.00 | at least 8.00 | reached |
| SQLite | 256 callers | one row at a time | 7.99 | 7.99 to 7.99 | at least 8.00 | **not reached** |
| SQLite | 256 callers | one row at a time |  |  | at least 8.00 | not measured |
| Proxy | replay | ReverseProxy | 0.35 | 0.20 to 0.36 | at most 0.35 | reached |
| Proxy | replay | ReverseProxy | 12.3 | 0.36 to 123 | at most 0.35 | **not reached** |
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestChart_HasABarForEachThroughputThatWasMeasured(t *testing.T) {
	r := throughput(row{subject: "Redis & Co", work: "256 callers", than: "<scripts>"}, "a", "b", 3)
	text := svg([]line{
		newLine(r, []float64{4}), newLine(r, []float64{2}), newLine(r, nil),
		newLine(cost(row{}, metric{}, metric{}, 1), []float64{1}),
	})
	bars := 0
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "rect" {
			bars++
		}
	}
	if bars != 2 || !strings.Contains(text, `width="330.0"`) || !strings.Contains(text, `width="165.0"`) {
		t.Errorf("%d bars, want one of 330 and one of 165 pixels:\n%s", bars, text)
	}
}

// A benchmark that was renamed would be measured no more.
func TestRows_NameBenchmarksThatExist(t *testing.T) {
	declared := regexp.MustCompile(`(?m)^func Benchmark(\w+)\(`)
	for _, r := range rows {
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
		for _, m := range []metric{r.of, r.to} {
			if name, _, _ := strings.Cut(m.benchmark, "/"); !there[name] || !regexp.MustCompile(topLevel).MatchString("Benchmark"+name) {
				t.Errorf("%s: there is no Benchmark%s in %s, or %s does not match it", r, name, r.dir, r.pattern)
			}
		}
		if r.goal <= 0 || r.time == "" || r.than == "" {
			t.Errorf("%+v is not complete", r)
		}
	}
}
