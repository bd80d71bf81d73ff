// Command benchtable runs the benchmarks that have a goal, most of which compare Onlyonce with code
// that one would write by hand, and prints the results as a table in Markdown. Each round runs
// every benchmark once, so that both sides of a ratio meet the same load of the machine, and a
// ratio is computed within a round. The table has the median of the rounds, and the lowest and the
// highest result. Benchmarks that take minutes run in the first rounds only, and a row whose
// benchmark was skipped says why.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 5, "how many times each benchmark runs")
	flag.IntVar(&o.slow, "slow", 1, "how many times those that take minutes run (0: they do not)")
	flag.StringVar(&o.only, "only", "", "regular expression of the rows to measure, such as '^PostgreSQL, 256' (default: all)")
	flag.StringVar(&o.chart, "svg", "", "file to write a chart of the table to (default: none)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := o.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "benchtable:", err)
		os.Exit(1)
	}
}

type options struct {
	rounds, slow int
	only, chart  string
}

// run prints the table, and returns an error if a benchmark failed. The other rows are
// measured all the same.
func (o options) run(ctx context.Context) error {
	pattern, err := regexp.Compile(o.only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	if o.rounds < 1 || o.slow < 0 || o.slow > o.rounds {
		return fmt.Errorf("-rounds is %d and -slow is %d: set at least 1, and not more slow rounds than rounds", o.rounds, o.slow)
	}
	var chosen []row
	for _, r := range rows {
		if !pattern.MatchString(r.String()) {
			continue
		}
		if r.slow && o.slow == 0 {
			r.missing = "it takes minutes, and -slow is 0"
		}
		chosen = append(chosen, r)
	}
	if len(chosen) == 0 {
		return fmt.Errorf("-only %q matches no row", o.only)
	}
	folder, err := os.MkdirTemp("", "benchtable")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	programs, err := build(ctx, folder, chosen)
	if err != nil {
		return err
	}
	began := time.Now()
	all := make([][]float64, len(chosen))
	var failed []error
	for round := range o.rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, o.rounds)
		for _, p := range programs {
			measured, err := p.run(ctx, chosen, round < o.slow)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			failed = append(failed, err)
			for i, r := range chosen {
				if r.dir != p.dir {
					continue
				}
				if result, ok := measured.result(r); ok {
					all[i] = append(all[i], result)
				} else if why := measured.reason(r); why != "" {
					chosen[i].missing = why
				}
			}
		}
	}
	var lines []line
	for i, r := range chosen {
		lines = append(lines, newLine(r, all[i]))
	}
	fmt.Printf("%s It took %s.\n\n%s", machine(), time.Since(began).Round(time.Second), table(lines))
	if o.chart != "" {
		failed = append(failed, os.WriteFile(o.chart, []byte(svg(lines)), 0o644))
	}
	return errors.Join(failed...)
}

// machine describes the machine, the date and the versions.
func machine() string {
	processor := runtime.GOARCH
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, rest, ok := strings.Cut(string(info), "model name\t: "); ok {
			processor, _, _ = strings.Cut(rest, "\n")
		}
	}
	text := fmt.Sprintf("Measured on %s with %s on %d processors (%s).", time.Now().Format(time.DateOnly), runtime.Version(), runtime.NumCPU(), processor)
	for _, server := range [][]string{{"psql", "--version"}, {"mariadbd", "--version"}, {"redis-server", "--version"}} {
		if out, err := exec.Command(server[0], server[1:]...).Output(); err == nil {
			text += " " + strings.TrimSpace(string(out)) + "."
		}
	}
	return text
}

// A program is the compiled benchmarks of one package.
type program struct {
	dir  string // of the package, from the top of the repository
	path string
}

func build(ctx context.Context, folder string, chosen []row) (programs []program, err error) {
	seen := make(map[string]bool)
	for _, r := range chosen {
		if r.missing != "" || seen[r.dir] {
			continue
		}
		seen[r.dir] = true
		p := program{dir: r.dir, path: filepath.Join(folder, fmt.Sprint("program", len(programs)))}
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-o", p.path, ".")
		cmd.Dir = r.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("go test -c in %s: %w\n%s", r.dir, err, out)
		}
		programs = append(programs, p)
	}
	return programs, nil
}

// run runs the benchmarks of the program's rows once, those that take minutes only if slow is set.
// It returns the results of those that did not fail.
func (p *program) run(ctx context.Context, chosen []row, slow bool) (results, error) {
	all := newResults()
	var failed []error
	for _, g := range groups(p.dir, chosen) {
		if g.slow && !slow {
			continue
		}
		began := time.Now()
		cmd := exec.CommandContext(ctx, p.path, "-test.run", "^$", "-test.bench", g.pattern, "-test.benchtime", g.time, "-test.benchmem", "-test.v")
		cmd.Dir = p.dir
		out, err := cmd.CombinedOutput()
		fmt.Fprintf(os.Stderr, "%s: %s, %s\n", p.dir, g.pattern, time.Since(began).Round(time.Second))
		if err != nil {
			failed = append(failed, fmt.Errorf("%s in %s: %w\n%s", g.pattern, p.dir, err, out))
		}
		all.read(string(out))
	}
	return all, errors.Join(failed...)
}
