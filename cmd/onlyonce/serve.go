package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func serveCommand() *cobra.Command {
	var cfg serveConfig
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the items, sandboxes and orders APIs",
		Long: `Runs the items API (/api/v1/items), the sandboxes API (/v1/sandboxes) and the
orders API (/orders) on one store, which is made at the first start. /healthz,
/readyz and /metrics are for supervisors; they need no token.

With a --store on a server, such as postgres://…, the orders, their records,
events and shipments live there; items and sandboxes keep their file in --data.

What to try is printed to standard output, the log to standard error.

Every flag is also an environment variable, shown in brackets; the flag wins,
and an empty variable counts as not set. Callers need no token unless --tokens
names a file of them; then every request to an API needs one, unless
--allow-anonymous says otherwise. The file has one line for each token: its
owner, and the token's SHA-256 in hexadecimal.

SIGINT or SIGTERM ends the server once the requests that run are answered; a
second one ends it at once.`,
		Example: `  onlyonce serve
  onlyonce serve --listen 127.0.0.1:0 --data /var/lib/onlyonce
  echo "alice $(printf %s "$TOKEN" | sha256sum | cut -c 1-64)" >> tokens.txt
  onlyonce serve --listen :8080 --tokens tokens.txt
  ONLYONCE_LOG_FORMAT=text onlyonce serve --store sqlite:/var/lib/onlyonce/main.db`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fromEnv(cmd); err != nil {
				return err
			}
			if err := cfg.complete(cmd); err != nil {
				return err
			}
			return serve(cmd.Context(), cfg, cmd.OutOrStdout())
		},
	}
	cfg.addFlags(cmd)
	return cmd
}

func serve(ctx context.Context, cfg serveConfig, out io.Writer) (err error) {
	log, err := cfg.log.logger(os.Stderr)
	if err != nil {
		return err
	}
	ln, err := cfg.listener()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(cfg.data, 0o700); err != nil {
		return errors.Join(fmt.Errorf("make the data directory: %w", err), ln.Close())
	}
	a, err := newApp(ctx, cfg, log)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	defer func() { err = errors.Join(err, a.close()) }()
	signals, release := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer release()
	if err := welcome(out, ln.Addr(), a.stores(), !a.open); err != nil {
		return errors.Join(fmt.Errorf("print what to try: %w", err), ln.Close())
	}
	log.Info("listening", "address", ln.Addr().String(), "store", a.stores(), "version", programVersion(), "anonymous_callers", a.open)
	l := lifecycle{
		server:     newServer(a.handler(), max(cfg.lease+cfg.wait, cfg.orders.longest()), log),
		background: a.background(),
		health:     a.health,
		limit:      cfg.shutdownTimeout,
		log:        log,
	}
	return l.run(signals, ln, release)
}
