// Package serve is the command "onlyonce serve": it runs the items, sandboxes and
// orders APIs on one store.
package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/logging"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/server"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/telemetry"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/version"
	"github.com/onlyonce-go/onlyonce/proxy"
	"github.com/spf13/cobra"
)

// Command returns the command "onlyonce serve".
func Command() *cobra.Command {
	var cfg config
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the items, sandboxes and orders APIs",
		Long: `Runs the items API (/api/v1/items), the sandboxes API (/v1/sandboxes) and the
orders API (/orders) on one store, which is created at the first start. /healthz,
/readyz and /metrics are for supervisors, at --listen or at their own --admin
address. Other machines need a token for /metrics.

While callers need no token and the server listens on this machine only, it serves
only requests to localhost, so that no page of another site can call it from a
browser on this machine.

With a --store on a server, such as postgres://…, the orders, their records, events
and shipments are stored there; items and sandboxes keep their file in --data.

Commands to try are printed to standard output, the log to standard error.

Every flag is also an environment variable, shown in brackets. The flag takes
precedence over the variable, and an empty variable counts as not set.

Callers need no token unless --tokens names a file of tokens; then every request to
an API needs one, unless --allow-anonymous is set. Each line of the file is an owner
and the SHA-256 of a token in hexadecimal. The file is read once: to revoke a token,
replace its hash by the word revoked, and restart the server. The line keeps the name
of the owner reserved: without it, --allow-anonymous would let any caller without a
token use the name, and with it the owner's orders, sandboxes and responses.

SIGINT or SIGTERM ends the server once the running requests have their responses; a
second signal ends it at once.`,
		Example: `  onlyonce serve
  onlyonce serve --listen 127.0.0.1:0 --data /var/lib/onlyonce
  echo "alice $(printf %s "$TOKEN" | sha256sum | cut -c 1-64)" >> tokens.txt
  onlyonce serve --listen :8080 --tokens tokens.txt
  ONLYONCE_LOG_FORMAT=text onlyonce serve --store sqlite:/var/lib/onlyonce/main.db`,
		Args: cli.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.SetFromEnv(cmd); err != nil {
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

func serve(ctx context.Context, cfg config, out io.Writer) (err error) {
	log, err := cfg.log.Logger(os.Stderr)
	if err != nil {
		return err
	}
	logging.SetDefault(log)
	logging.WarnOfPasswords(os.Args[1:], log)
	ln, err := cfg.listener()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(cfg.data, 0o700); err != nil {
		return errors.Join(fmt.Errorf("create the data directory: %w", err), ln.Close())
	}
	spans, err := telemetry.StartTracing(ctx, log)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	defer spans.Close()
	a, err := newApp(ctx, cfg, spans, log)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	defer func() { err = errors.Join(err, a.close()) }()
	push, err := telemetry.StartPush(ctx, a.metrics.Registry, log)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	defer push.Close() // while the stores are open
	background := a.background()
	if a.hasAdmin {
		admin, err := server.NewAdmin(cfg.admin, cfg.hosts(cfg.admin), a.health, a.metrics, a.consoles, log)
		if err != nil {
			return errors.Join(err, ln.Close())
		}
		defer admin.Listener.Close()
		background = append(background, admin.Run)
		log.Info("admin address is listening", "address", admin.Listener.Addr().String())
	}
	signals, release := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer release()
	if err := welcome(out, ln.Addr(), a.stores(), !a.open); err != nil {
		return errors.Join(fmt.Errorf("print what to try: %w", err), ln.Close())
	}
	log.Info("listening", "address", ln.Addr().String(), "store", a.stores(), "version", version.Program(), "anonymous_callers", a.open)
	handler := a.handler()
	if a.open && ln.Addr().(*net.TCPAddr).IP.IsLoopback() {
		handler = server.OwnHosts(a.hosts, a.forbid("requests without a token are accepted only under the name localhost: to allow another Host or Origin, start onlyonce serve with --allow-host NAME"), handler)
	}
	l := server.Lifecycle{
		Server:     server.New(spans.Handler(handler), max(cfg.lease+cfg.wait, cfg.orders.longest()), log),
		Background: background,
		Health:     a.health,
		Limit:      cfg.shutdownTimeout,
		Log:        log,
	}
	return l.Run(signals, proxy.Listen(ln, nil), release)
}
