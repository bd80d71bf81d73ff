// Command benchtable runs the benchmarks that compare Onlyonce with code that one would write by
// hand, and prints the ratios as a table in Markdown. Each round runs every benchmark once,
// so that both sides of a ratio meet the same load of the machine, and a ratio is
// computed within a round. The table has the median of the rounds, and the lowest and the
// highest ratio.
package main

import (
	"context"
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
	rounds := flag.Int("rounds", 5, "how many times each benchmark runs")
	only := flag.String("only", "", "regular expression of the rows to measure (default: all)")
	chart := flag.String("svg", "", "file to write a chart of the table to (default: none)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *rounds, *only, *chart); err != nil {
		fmt.Fprintln(os.Stderr, "benchtable:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, rounds int, only, chart string) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	if rounds < 1 {
		return fmt.Errorf("-rounds is %d: set at least 1", rounds)
	}
	var chosen []row
	for _, r := range rows {
		if pattern.MatchString(r.String()) {
			chosen = append(chosen, r)
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("-only %q matches no row", only)
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
	ratios := make([][]float64, len(chosen))
	for i := range rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", i+1, rounds)
		measured := make(map[string]results)
		for _, p := range programs {
			if measured[p.dir], err = p.run(ctx, chosen); err != nil {
				return err
			}
		}
		for i, r := range chosen {
			if ratio, ok := measured[r.dir].ratio(r); ok {
				ratios[i] = append(ratios[i], ratio)
			}
		}
	}
	var lines []line
	for i, r := range chosen {
		lines = append(lines, newLine(r, ratios[i]))
	}
	fmt.Printf("%s\n\n%s", machine(), table(lines))
	if chart == "" {
		return nil
	}
	return os.WriteFile(chart, []byte(svg(lines)), 0o644)
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
		if seen[r.dir] {
			continue
		}
		seen[r.dir] = true
		p := program{dir: r.dir, path: filepath.Join(folder, strings.ReplaceAll(r.dir, "/", "_"))}
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-o", p.path, ".")
		cmd.Dir = r.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("go test -c in %s: %w\n%s", r.dir, err, out)
		}
		programs = append(programs, p)
	}
	return programs, nil
}

// run runs the benchmarks of the program's rows once.
func (p *program) run(ctx context.Context, chosen []row) (results, error) {
	all := make(results)
	for _, g := range groups(p.dir, chosen) {
		cmd := exec.CommandContext(ctx, p.path, "-test.run", "^$", "-test.bench", g.pattern, "-test.benchtime", g.time, "-test.benchmem")
		cmd.Dir = p.dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("%s in %s: %w\n%s", g.pattern, p.dir, err, out)
		}
		all.read(string(out))
	}
	return all, nil
}
