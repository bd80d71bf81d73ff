package serve

import (
	"context"
	"log/slog"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/metrics"
	"github.com/onlyonce-go/onlyonce/services/orders"
	"github.com/spf13/cobra"
)

// An ordersConfig has the settings of the orders API from serve's flags and environment.
type ordersConfig struct {
	keep         time.Duration
	lease        time.Duration
	maxWait      time.Duration
	keepFailures bool
	broker       cli.Broker
}

func (c *ordersConfig) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.DurationVar(&c.keep, "orders-keep", onlyonce.DefaultKeep, "how long the orders API keeps a key with its response")
	f.DurationVar(&c.lease, "orders-lease", onlyonce.DefaultLease, "how long a running orders command may take")
	f.DurationVar(&c.maxWait, "orders-max-wait", orders.DefaultMaxWait, "longest wait that the orders API grants to a client's \"Prefer: wait=N\"")
	c.broker.AddFlags(cmd, ", between the orders API and its consumer (default: none, the store delivers the events in this process)")
	f.BoolVar(&c.keepFailures, "orders-keep-failures", false, "replay the failure of an orders command to a repeat, instead of running the command again")
}

// durations returns the durations by flag.
func (c *ordersConfig) durations() map[string]time.Duration {
	return map[string]time.Duration{"orders-keep": c.keep, "orders-lease": c.lease, "orders-max-wait": c.maxWait}
}

// longest returns how long a response may take.
func (c *ordersConfig) longest() time.Duration { return c.lease + c.maxWait }

func (a *app) makeOrders(ctx context.Context, cfg config, log *slog.Logger) (err error) {
	events := a.counts.orders.Store().Outbox(a.ordersIn.Outbox())
	a.orders, err = orders.New(ctx, a.ordersIn.DB, a.orderRecords, a.ordersIn.Outbox(), orders.Config{
		Tokens: a.tokens, AllowAnonymous: cfg.allowAnonymous,
		Keep: cfg.orders.keep, Lease: cfg.orders.lease, MaxWait: cfg.orders.maxWait, KeepFailures: cfg.orders.keepFailures,
		NoMigrate:         cfg.noMigrate,
		FingerprintSecret: a.inOrders,
		MaxAttempts:       cfg.orders.broker.MaxAttempts,
		Broker:            cfg.orders.broker.URL, BrokerName: cfg.orders.broker.Name,
		Observer: a.observe(a.counts.orders, a.meters.ordersIn), Traceparent: a.tracing.Traceparent(), OutboxObserver: events.Observe,
		Log: log, ShowKey: cfg.log.ShowKey(),
	})
	if err == nil {
		a.metrics.Registry.MustRegister(metrics.Poisoned(a.orders.PoisonedCount))
	}
	return err
}
