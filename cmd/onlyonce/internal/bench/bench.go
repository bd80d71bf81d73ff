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

// Command returns the command "onlyonce bench".
func Command() *cobra.Command {
	var cfg config
	cmd := &cobra.Command{
		Use:   "bench URL",
		Short: "Load a store or an HTTP API, and check that every command runs once",
		Long: `Sends commands with new keys, and repeats some of them, to a store (memory://,
sqlite:PATH, postgres://…, pgx://… for PostgreSQL through pgxstore, mysql://…,
redis://…, nats://…, etcd://… or dynamodb://…) or to an HTTP API (http://… or
https://…). Each caller sends one request at a time, as fast as the responses arrive,
or at --rate.
bench prints how many requests were executed, replayed, rejected or failed, and how
long they took. With --rate, latency is measured from the time at which a request was due.

While it runs, bench checks that every key ran once and that every repeat got the
first response. If not, the exit code is 1. Over HTTP it sees only responses: a
second run shows if its response differs, or lacks the Idempotency-Replayed header
that the API otherwise sends.

In a store, bench uses a new, random tenant, and purges its keys once they have
expired, --keep after they were settled; that purge also deletes all other expired
records. Redis, NATS, etcd and DynamoDB delete expired records by themselves.

Whatever the requests create in an HTTP API stays there, so bench asks before it
sends any. {key} in --body and --header stands for each request's key.

With --compare, two targets take turns in short slices, so that both are exposed
to the same noise, and the ratios between them are printed.

Ctrl-C ends the run and prints what was measured so far.`,
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

// bench opens the targets, puts them under load, and prints the measurements, even
// if it is interrupted or fails.
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
	context.AfterFunc(signals, release) // a second signal ends the process
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
	return report.err()
}

// open opens the target that a URL names.
func (c *config) open(cmd *cobra.Command, raw string) (target, error) {
	if isHTTP(raw) {
		return openHTTP(cmd, c, raw)
	}
	return openStoreTarget(cmd.Context(), c, raw)
}
