// Package relay is the command "onlyonce relay": it publishes the events of a store
// through a broker.
package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/logging"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/metrics"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/server"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/storeflags"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/telemetry"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/version"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/services/orders"
	"github.com/spf13/cobra"
)

// A relayConfig holds the values of relay's flags.
type relayConfig struct {
	store, storeFile string
	broker           cli.Broker
	admin            string // empty: none
	log              logging.Config
	acceptRisks      []string
}

// Command returns the command "onlyonce relay".
func Command() *cobra.Command {
	var cfg relayConfig
	cmd := &cobra.Command{
		Use:   "relay",
		Short: "Publish the messages of a store's outbox through a broker",
		Long: `Publishes the messages that a store's transactions have appended to its outbox, at
least once, and in order for each ordering key. Any number of relays can run on one
store, including those of its servers.

SIGINT or SIGTERM ends the relay once the messages that are being published are
acknowledged.`,
		Example: `  onlyonce relay --store postgres://app@db/shop --broker nats://127.0.0.1:4222
  onlyonce relay --store sqlite:onlyonce-data/onlyonce.db --broker amqp://guest:guest@127.0.0.1:5672`,
		Args: cli.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.SetFromEnv(cmd); err != nil {
				return err
			}
			if err := cfg.check(); err != nil {
				return err
			}
			return relay(cmd.Context(), cfg)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&cfg.store, "store", "", "`URL` of the store")
	f.StringVar(&cfg.storeFile, "store-file", "", storeflags.FileUsage)
	cfg.broker.AddFlags(cmd, "")
	f.StringVar(&cfg.admin, "admin", "", "`address` for /healthz, /readyz and /metrics, such as 127.0.0.1:9090 (default: none)")
	f.StringSliceVar(&cfg.acceptRisks, "accept-risk", nil, storeflags.RiskUsage+"; may be repeated")
	cfg.log.AddFlags(cmd)
	cli.DocumentEnv(cmd)
	return cmd
}

func (c *relayConfig) check() error {
	switch {
	case c.store != "" && c.storeFile != "":
		return storeflags.ErrBoth
	case c.store == "" && c.storeFile == "":
		return cli.Usagef("no store is set: pass its URL with --store (%s) or --store-file", cli.EnvName("store"))
	case c.broker.URL == "":
		return cli.Usagef("no broker is set: pass its URL with --broker (%s)", cli.EnvName("broker"))
	}
	return c.broker.Check()
}

func relay(ctx context.Context, cfg relayConfig) (err error) {
	log, err := cfg.log.Logger(os.Stderr)
	if err != nil {
		return err
	}
	logging.WarnOfPasswords(os.Args[1:], log)
	if cfg.storeFile != "" {
		if cfg.store, err = storeurl.ReadFile(cfg.storeFile, cfg.acceptRisks); err != nil {
			return err
		}
	}
	u, err := storeurl.Parse(cfg.store)
	if err != nil {
		return err
	}
	db, err := u.OpenDB(ctx, false)
	if err != nil {
		return err
	}
	store, err := u.Open(ctx, db, cfg.acceptRisks)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	signals, release := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer release()
	m := metrics.New()
	records := m.Store("main")
	events := records.Outbox(store.Outbox())
	watch := server.NewStoreWatch(store.URL.String(), store.Store, records, log)
	stopAdmin, err := cfg.serveAdmin(ctx, m, watch, log)
	if err != nil {
		return err
	}
	push, err := telemetry.StartPush(ctx, m.Registry, log)
	if err != nil {
		return errors.Join(err, stopAdmin())
	}
	defer push.Close() // while the store is open
	log.Info("relaying", "store", u.String(), "broker", cfg.broker.Name, "version", version.Program())
	err = orders.Relay(signals, store.Outbox(), orders.Config{
		Broker: cfg.broker.URL, BrokerName: cfg.broker.Name, MaxAttempts: cfg.broker.MaxAttempts, Log: log,
		OutboxObserver: func(ctx context.Context, e outbox.Event) {
			events.Observe(ctx, e)
			if e.Outcome == outbox.OutcomeTrouble {
				watch.CheckSoon()
			}
		},
	})
	err = errors.Join(err, stopAdmin())
	log.Info("stopped")
	if err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	return nil
}

// serveAdmin watches the store, and serves health checks and metrics if there is an address for
// them, until stop is called.
func (c *relayConfig) serveAdmin(ctx context.Context, m *metrics.Set, watch *server.StoreWatch, log *slog.Logger) (stop func() error, err error) {
	tasks := []func(context.Context) error{watch.Run}
	if c.admin != "" {
		admin, err := server.NewAdmin(c.admin, server.Hosts(c.admin), &server.Health{Checks: []func(context.Context) error{watch.Check}}, m, nil, log)
		if err != nil {
			return nil, err
		}
		log.Info("admin address is listening", "address", admin.Listener.Addr().String())
		tasks = append(tasks, admin.Run)
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, len(tasks))
	for _, run := range tasks {
		go func() { ended <- run(ctx) }()
	}
	return func() (err error) {
		cancel()
		for range tasks {
			err = errors.Join(err, <-ended)
		}
		return err
	}, nil
}
