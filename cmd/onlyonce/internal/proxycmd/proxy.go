// Package proxycmd is the command "onlyonce proxy": it makes a proxy from a file or
// from flags, and puts changed settings in place while it runs.
package proxycmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/logging"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/metrics"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/proxyfile"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/server"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/telemetry"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/version"
	"github.com/onlyonce-go/onlyonce/console"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
	"github.com/onlyonce-go/onlyonce/proxy"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
	"github.com/spf13/cobra"
)

// Command returns the command "onlyonce proxy".
func Command() *cobra.Command {
	var cfg config
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Run the idempotency layer in front of a server in any language",
		Long: `Runs the idempotency layer in front of a server in any language, which needs no
change: a POST or PATCH with an Idempotency-Key runs once, and a repeat gets the
first response. All other requests pass through unchanged and streaming, including
HTTP/2, WebSockets, server-sent events and gRPC.

Choose one of four ways to identify the tenant of a request. Two tenants can use the
same key and never see each other's responses.
  --tenant-header         a header, trusted from this machine only, unless
                          --tenant-header-from or --tls-client-ca is set. The server
                          that sets it must authenticate the clients and replace
                          the value that they send.
  --tenant-claim          a claim of a bearer token, which the proxy verifies with
                          the public keys of --jwks.
  --tenant-authorization  each distinct Authorization header is a tenant. The proxy
                          verifies nothing.
  --single-tenant         all callers share one tenant, and may see each other's
                          responses.

If a request did not reach the upstream, a repeat runs. If the connection broke, or
the response was late or was a 502 or 504, the outcome is unknown: --unknown decides
what a repeat does. The upstream gets the key, the number of the attempt as
Idempotency-Attempt, and Idempotency-Fence.

Several proxies on one store on a server (postgres://, mysql://, redis://, nats://,
etcd:// or dynamodb://) give the same guarantees as one. A redis://, nats://, etcd://
or dynamodb:// store is set up with onlyonce migrate first.

A --config file has more settings, per route; --print-config prints a commented one.
SIGHUP reloads it without dropping a request. TLS files are reloaded when they change.
Commands to try are printed to standard output, the log to standard error.

Every flag is also an environment variable, shown in brackets. The flag takes
precedence over the variable, and an empty variable counts as not set.

SIGINT or SIGTERM ends the proxy once the running requests have their responses; a
second signal ends it at once.`,
		Example: `  onlyonce proxy --upstream http://127.0.0.1:3000 --single-tenant
  onlyonce proxy --upstream http://127.0.0.1:3000 --listen 127.0.0.1:8080 --store sqlite:keys.db --tenant-header X-Tenant-ID --unknown hold
  onlyonce proxy --upstream https://orders.internal --upstream-ca ca.crt --tls-cert a.crt --tls-key a.key --listen :8443 --store postgres://… --tenant-claim sub --jwks https://id.example.com/jwks.json --admin 127.0.0.1:9090
  onlyonce proxy --upstream http://127.0.0.1:3000 --single-tenant --print-config > proxy.yaml
  onlyonce proxy --config proxy.yaml`,
		Args: cli.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.SetFromEnv(cmd); err != nil {
				return err
			}
			f, err := cfg.read(cmd)
			if err != nil {
				return err
			}
			switch {
			case cfg.print:
				fmt.Fprint(cmd.OutOrStdout(), proxyfile.Print(f))
				return nil
			case cfg.check:
				return checkProxy(cmd, f)
			}
			return inFlags(runProxy(cmd.Context(), f, func() (*proxyfile.File, error) { return cfg.readAgain(cmd) }, cmd.OutOrStdout()))
		},
	}
	cfg.addFlags(cmd)
	return cmd
}

// checkProxy reads the files that the settings name. It neither opens the store nor
// connects to other machines. It prints how many routes there are, because a file that
// was cut off before its routes is valid.
func checkProxy(cmd *cobra.Command, f *proxyfile.File) error {
	if _, err := newSecurity(f.TLS, f.AcceptRisks); err != nil {
		return inFlags(f.Mistake("tls", err.Error(), "tls.cert"))
	}
	b := newRouteBuilder(memstore.New(memstore.Config{}), metrics.New(), slog.New(slog.DiscardHandler), nil)
	if _, _, err := b.build(f, tenantResolver{of: func(*http.Request) string { return "" }}); err != nil {
		return inFlags(err)
	}
	if err := checkStore(f); err != nil {
		return inFlags(err)
	}
	if err := checkTenants(cmd.Context(), f); err != nil {
		return inFlags(err)
	}
	if path := f.Console.Tokens; path != "" {
		if _, err := server.ReadConsoleTokens(path, f.AcceptRisks); err != nil {
			return inFlags(f.Mistake("console.tokens", err.Error()))
		}
	}
	routes := "no routes, so every request follows defaults"
	if n := len(f.Routes); n > 0 {
		routes = fmt.Sprintf("routes: %d", n)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "the settings are valid (upstreams: %d; %s)\n", len(f.Upstreams), routes)
	return nil
}

// checkStore reads the files that name the store, and checks that the directory of a
// SQLite file exists.
func checkStore(f *proxyfile.File) error {
	at := "store.url"
	if f.Store.URLFile != "" {
		at = "store.url_file"
	}
	raw, err := storeURLOf(f)
	if err != nil {
		return f.Mistake(at, err.Error())
	}
	if raw != inMemory {
		u, err := storeurl.Parse(raw)
		if err == nil && u.Engine == storeurl.SQLite {
			err = u.CheckPath(true)
		}
		if err != nil {
			return f.Mistake(at, err.Error())
		}
	}
	if path := f.Store.FingerprintSecretFile; path != "" {
		if _, err := storeurl.ReadSecret(path, f.AcceptRisks); err != nil {
			return f.Mistake("store.fingerprint_secret_file", err.Error())
		}
	}
	if _, err := encryption(f).Cipher(); err != nil {
		return f.Mistake("store.encryption_keys_file", err.Error())
	}
	return nil
}

// checkTenants reads the public keys, unless they are on another machine.
func checkTenants(ctx context.Context, f *proxyfile.File) error {
	j := &f.Tenant.JWT
	if proxyfile.IsURL(j.JWKS) {
		if j.CA != "" {
			if _, err := readRoots(j.CA); err != nil {
				return f.Mistake("tenant.jwt.ca", err.Error())
			}
		}
		return nil
	}
	t, err := newTenantResolver(ctx, f, slog.New(slog.DiscardHandler))
	if err == nil && t.stop != nil {
		t.stop()
	}
	return err
}

// newRouteBuilder returns a routeBuilder for a store.
func newRouteBuilder(store onlyonce.Store, m *metrics.Set, log *slog.Logger, showKey func(onlyonce.ID) string) *routeBuilder {
	b := &routeBuilder{
		store:   store,
		metrics: newTrafficMetrics(m, log),
	}
	b.guards.Store(new(map[policy]*onlyonce.Guard))
	logs := onlyonce.SlogObserver(slog.New(routeLog{log.Handler(), b.shown}), showKey)
	b.observer = onlyonce.Tee(b.count, b.metrics.limitUnavailable(logs))
	return b
}

// runProxy serves until it gets a signal to stop; read reads the settings again.
func runProxy(ctx context.Context, f *proxyfile.File, read func() (*proxyfile.File, error), out io.Writer) (err error) {
	logs := logging.Config{Format: f.LogFormat, Level: f.LogLevel, Keys: f.LogKeys}
	log, err := logs.Logger(os.Stderr)
	if err != nil {
		return err
	}
	logging.SetDefault(log)
	logging.WarnOfPasswords(os.Args[1:], log)
	spans, err := telemetry.StartTracing(ctx, log)
	if err != nil {
		return err
	}
	defer spans.Close()
	hangup := hangups() // before anything that takes time: it must not end the process
	ln, err := net.Listen("tcp", f.Listen)
	if err != nil {
		return fmt.Errorf("%w; name another address with --listen", err)
	}
	defer ln.Close()
	m, meter := metrics.New(), console.NewMeter()
	store, err := openStore(ctx, f, m, meter, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.close()) }()
	m.Store("main").Watch(store.Store)
	b := newRouteBuilder(store.Store, m, log, logs.ShowKey())
	b.secret, b.tracing, b.observer = store.secret, spans, onlyonce.Tee(b.observer, meter.Observe)
	p, err := newReloadableProxy(ctx, f, b, read, log)
	if err != nil {
		return err
	}
	shaken := newHandshakes(m.Registry, p.secure.Load, log)
	push, err := telemetry.StartPush(ctx, m.Registry, log)
	if err != nil {
		return err
	}
	defer push.Close() // while the store is open
	watch := server.NewStoreWatch(store.shown, store.Store, m.Store("main"), log)
	b.metrics.storeFailed = watch.CheckSoon
	h := &server.Health{Checks: []func(context.Context) error{watch.Check, shaken.check}}
	background := []func(context.Context) error{p.run(hangup), watch.Run}
	if f.Admin != "" {
		operators, err := server.NewConsole(f.Console.Tokens, f.AcceptRisks, console.Config{
			Store: store.Store, Name: store.shown, Meter: meter, Health: watch.Check, Redact: f.Console.Redact, OnDecision: b.forget, Log: log,
		})
		if err != nil {
			return err
		}
		admin, err := server.NewAdmin(f.Admin, server.Hosts(f.Admin), h, m, map[string]http.Handler{console.DefaultPath: operators}, log)
		if err != nil {
			return err
		}
		defer admin.Listener.Close()
		background = append(background, admin.Run)
		log.Info("admin address is listening", "address", admin.Listener.Addr().String())
	}
	signals, release := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer release()
	if err := welcome(out, ln.Addr(), f, store); err != nil {
		return fmt.Errorf("print what to try: %w", err)
	}
	if store.forgets {
		log.Warn("the store is in memory: all records are lost on restart")
	}
	log.Info("listening", "address", ln.Addr().String(), "tls", f.TLS.Cert != "", "store", store.shown, "tenants", describeTenants(f), "version", version.Program())
	l := server.Lifecycle{Server: proxyServer(f, spans.Handler(b.metrics.count(p)), log), Background: background, Health: h, Limit: f.ShutdownTimeout, Log: log}
	accepting := proxy.Listen(ln, p.tlsConfig())
	accepting.HandshakeFailed = shaken.report
	return l.Run(signals, accepting, release)
}

// proxyServer is the package's server with the file's limits.
func proxyServer(f *proxyfile.File, h http.Handler, log *slog.Logger) *http.Server {
	s := proxy.Server(h)
	s.ReadHeaderTimeout, s.IdleTimeout, s.MaxHeaderBytes = f.Server.HeaderTimeout, f.Server.IdleTimeout, int(f.Server.MaxHeader)
	s.ErrorLog = logging.ServerErrors(log)
	return s
}
