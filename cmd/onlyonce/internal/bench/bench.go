// Package bench is the command "onlyonce bench": it puts a store or an HTTP API
// under load, and checks that every command runs once.
package bench

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/spf13/cobra"
)

// A config is what bench's flags say.
type config struct {
	compare     string
	callers     int
	rate        float64
	duration    time.Duration
	requests    int64
	duplicates  float64
	keys        string
	resultSize  int
	keep        time.Duration
	leave       bool
	format      string
	acceptRisks []string
	http        httpConfig
	may         cli.WritePermission
}

// Bounds of what bench is asked for.
const (
	longest     = time.Hour
	mostCallers = 10_000
	mostResult  = 1 << 20
	leastKeep   = 100 * time.Millisecond
)

// Command returns the command "onlyonce bench".
func Command() *cobra.Command {
	var cfg config
	cmd := &cobra.Command{
		Use:   "bench URL",
		Short: "Put a store or an HTTP API under load, and check that every command runs once",
		Long: `Sends commands with new keys, and some of them again, to a store (memory://,
sqlite:PATH, postgres://…, pgx://… for PostgreSQL through pgxstore, or mysql://…)
or to an HTTP API (http://… or https://…): from every caller one after another,
as fast as the answers come, or at --rate. It prints how many were executed,
replayed, refused or failed, and how long they took. With --rate the time counts
from when a request was due.

While it runs it checks that every key ran once and that every repeat got the
first answer. If one did not, the exit code is 1. Over HTTP it sees answers only:
a second run shows if its answer differs, or has no Idempotency-Replayed where
the API otherwise sends that.

A store gets keys of a new, random tenant, which are purged when they expire,
--keep after their end; that also purges what else has expired in the store. What
an HTTP API makes of the requests stays: bench asks before it sends them. {key}
in --body and --header stands for each request's key.

With --compare two targets take turns in short slices, so that both meet the same
noise, and the ratios between them are printed.

Ctrl-C ends it, and what was measured is printed all the same.`,
		Example: `  onlyonce bench memory://
  onlyonce bench sqlite:/tmp/bench.db --callers 64 --duplicates 0.5 --keys zipf
  onlyonce bench sqlite:/tmp/bench.db --compare pgx://app@db/shop
  onlyonce bench http://127.0.0.1:8080 --path /api/v1/items --body '{"sku":"{key}","title":"Lamp","status":"active"}' --yes-it-may-write`,
		Args: cli.ExactArgs("URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cfg.check(); err != nil {
				return err
			}
			urls := args
			if cfg.compare != "" {
				urls = append(urls, cfg.compare)
			}
			return cfg.bench(cmd, urls)
		},
	}
	cfg.addFlags(cmd)
	return cmd
}

func (c *config) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.IntVar(&c.callers, "callers", 16, "`number` of callers, each with one request at a time")
	f.Float64Var(&c.rate, "rate", 0, "`number` of requests a second, of all callers together; 0: as fast as the answers come")
	f.DurationVar(&c.duration, "duration", 10*time.Second, "how long, for each target; at most 1h")
	f.Int64Var(&c.requests, "requests", 0, "end after this `number` of requests to each target, if that is earlier")
	f.Float64Var(&c.duplicates, "duplicates", 0.2, "`ratio` of requests that repeat an earlier one, 0 to below 1")
	f.StringVar(&c.keys, "keys", keysUniform, "which earlier key is repeated: uniform (any), zipf (a few of them mostly) or sequential (one after another)")
	cli.CompleteValues(cmd, "keys", keysUniform, keysZipf, keysSequential)
	f.IntVar(&c.resultSize, "result-size", 500, "`bytes` of a result; stores only")
	f.StringVar(&c.compare, "compare", "", "another `URL` to take turns with")
	f.DurationVar(&c.keep, "keep", 5*time.Second, "how long an answer is kept, and repeated for half as long; memory:// keeps it 1s at most, unless there are few --requests")
	f.BoolVar(&c.leave, "leave", false, "do not wait until the keys have expired in order to purge them")
	f.StringSliceVar(&c.acceptRisks, "accept-risk", nil, "open a store in spite of the finding of this `name` (see onlyonce doctor); may be repeated")
	f.StringVar(&c.http.method, "method", "POST", "HTTP `method`")
	f.StringVar(&c.http.path, "path", "", "`path` below the URL")
	f.StringVar(&c.http.body, "body", `{"bench":"{key}"}`, "`text` of every request's body, or @FILE")
	f.StringArrayVar(&c.http.headers, "header", nil, "`header` of every request, as 'Name: value' or @FILE; may be repeated; the default Content-Type is application/json")
	f.StringVar(&c.http.keyHeader, "key-header", "Idempotency-Key", "`name` of the header with the key")
	f.DurationVar(&c.http.timeout, "timeout", 10*time.Second, "how long an HTTP request may take")
	f.StringVar(&c.http.caCert, "cacert", "", "`file` with the certificates (PEM) that a server's is trusted by")
	f.StringVar(&c.format, "format", "table", "table or json")
	cli.CompleteValues(cmd, "format", "table", "json")
	c.may.AddFlag(cmd)
}

func (c *config) check() error {
	switch {
	case c.callers < 1 || c.callers > mostCallers:
		return cli.Usagef("--callers is %d: write 1 to %d", c.callers, mostCallers)
	case !(c.rate >= 0 && c.rate <= 1e9): // NaN is neither
		return cli.Usagef("--rate is %v: write requests a second, or 0 for as fast as the answers come", c.rate)
	case c.duration <= 0 || c.duration > longest:
		return cli.Usagef("--duration is %v: a bench has an end: write up to %v", c.duration, longest)
	case c.requests < 0:
		return cli.Usagef("--requests is %d: write 1 or more, or leave it out", c.requests)
	case !(c.duplicates >= 0 && c.duplicates < 1):
		return cli.Usagef("--duplicates is %v: write the ratio of repeats, 0 to below 1, such as 0.2", c.duplicates)
	case c.keys != keysUniform && c.keys != keysZipf && c.keys != keysSequential:
		return cli.Usagef("invalid value %q for --keys: write %s, %s or %s", c.keys, keysUniform, keysZipf, keysSequential)
	case c.resultSize < leastResult || c.resultSize > mostResult:
		return cli.Usagef("--result-size is %d: write %d to %d", c.resultSize, leastResult, mostResult)
	case c.keep < leastKeep || c.keep > longest:
		return cli.Usagef("--keep is %v: write %v to %v", c.keep, leastKeep, longest)
	case c.format != "table" && c.format != "json":
		return cli.Usagef("invalid value %q for --format: write table or json", c.format)
	}
	return c.http.check()
}

// bench opens the targets, runs, and prints what was measured, however it ends.
func (c *config) bench(cmd *cobra.Command, urls []string) (err error) {
	var runs []*targetRun
	defer func() {
		for _, r := range runs {
			if bad := r.target.close(); err == nil {
				err = bad
			}
		}
	}()
	for _, u := range urls {
		target, err := c.open(cmd, u)
		if err != nil {
			return err
		}
		runs = append(runs, newTargetRun(c, target))
	}
	signals, release := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer release()
	context.AfterFunc(signals, release) // a second one ends the process
	stop := showProgress(runs)
	takeTurns(signals, c, runs)
	stop()
	ended := time.Now()
	report := newReport(c, runs, signals.Err() != nil)
	if err := report.print(cmd.OutOrStdout(), c.format); err != nil {
		return err
	}
	for _, r := range runs {
		if err := r.target.clean(signals, cmd.ErrOrStderr(), ended, c.leave || signals.Err() != nil); err != nil {
			return err
		}
	}
	return report.judge()
}

// open opens what a URL names.
func (c *config) open(cmd *cobra.Command, raw string) (target, error) {
	if isHTTP(raw) {
		return openHTTP(cmd, c, raw)
	}
	return openStoreTarget(cmd.Context(), c, raw)
}
