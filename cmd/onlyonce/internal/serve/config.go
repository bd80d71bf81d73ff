package serve

import (
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/logging"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/server"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/storeflags"
	"github.com/onlyonce-go/onlyonce/internal/defaults"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
	"github.com/onlyonce-go/onlyonce/internal/storeurl/private"
	"github.com/onlyonce-go/onlyonce/services/items"
	"github.com/onlyonce-go/onlyonce/services/sandboxes"
	"github.com/spf13/cobra"
)

// A config has the settings from serve's flags and environment.
type config struct {
	listen string
	admin  string
	data   string
	store  string

	storeFile  string
	encryption storeurl.Encryption
	noMigrate  bool
	secretFile string

	itemsKeep time.Duration

	sandboxesKeep        time.Duration
	sandboxesMaxExtend   int64 // seconds
	sandboxesMaxSessions int64
	sandboxesIdleTimeout time.Duration

	orders ordersConfig

	purgeEvery interval
	lease      time.Duration
	wait       time.Duration

	consoleTokens string
	consoleRedact []string

	tokens          string
	allowAnonymous  bool
	anonymousBeyond bool
	acceptRisks     []string
	allowHosts      []string
	log             logging.Config
	shutdownTimeout time.Duration
}

// addFlags declares the flags, each with its environment variable.
func (c *config) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&c.listen, "listen", server.DefaultListen, "`address` to listen on; port 0 takes a free one")
	f.StringVar(&c.admin, "admin", "", "`address` for /healthz, /readyz, /metrics and the console only, such as 127.0.0.1:9090 (default: --listen, with /metrics for this machine and for clients with a token)")
	f.StringVar(&c.data, "data", "./onlyonce-data", "`directory` for the store and the sandboxes' workspaces; created if it does not exist")
	f.StringVar(&c.store, "store", "", "`URL` of the store, such as sqlite:PATH (default: onlyonce.db in --data); a store on a server is for the orders only, and items and sandboxes stay in --data")
	f.StringVar(&c.storeFile, "store-file", "", storeflags.FileUsage)
	storeflags.AddEncryption(f, &c.encryption)
	f.BoolVar(&c.noMigrate, "no-migrate", false, "never create or change tables; if they are not up to date, do not start: run onlyonce migrate --serve first")
	f.StringVar(&c.secretFile, "fingerprint-secret-file", "", storeflags.SecretUsage)
	f.DurationVar(&c.itemsKeep, "items-keep", items.DefaultKeep, "how long the items API keeps a key with its response")
	f.DurationVar(&c.sandboxesKeep, "sandboxes-keep", onlyonce.DefaultKeep, "how long the sandboxes API keeps a key with its response")
	f.Int64Var(&c.sandboxesMaxExtend, "sandboxes-max-extend", sandboxes.DefaultMaxExtend, "largest extend_by, in `seconds`")
	f.Int64Var(&c.sandboxesMaxSessions, "sandboxes-max-sessions", sandboxes.DefaultMaxSessions, "largest `number` of sandbox sessions of an owner at a time; a caller without a token starts no session while all owners together have so many")
	f.DurationVar(&c.sandboxesIdleTimeout, "sandboxes-idle-timeout", sandboxes.DefaultIdleTimeout, "how long a session lasts without a keepalive")
	c.orders.addFlags(cmd)
	c.purgeEvery = interval(defaults.PurgeEvery)
	f.Var(&c.purgeEvery, "purge-every", "how often the expired records of all three APIs are deleted; off: never by this server")
	f.DurationVar(&c.lease, "lease", onlyonce.DefaultLease, "how long a running items or sandboxes command may take")
	f.DurationVar(&c.wait, "wait", sandboxes.DefaultWait, "how long a repeat of a running sandboxes command waits for its response; 0: not at all")
	f.StringVar(&c.tokens, "tokens", "", "`file` whose lines are an owner and the SHA-256 of a token")
	f.StringVar(&c.consoleTokens, "console-tokens", "", server.ConsoleTokensUsage)
	f.StringSliceVar(&c.consoleRedact, "console-redact", nil, server.ConsoleRedactUsage)
	f.BoolVar(&c.allowAnonymous, "allow-anonymous", true, "serve callers without a token; with --tokens the default is false")
	f.BoolVar(&c.anonymousBeyond, "allow-anonymous-beyond-loopback", false, "serve callers without a token from other machines, too")
	f.StringSliceVar(&c.allowHosts, "allow-host", nil, "host `name` other than localhost that callers without a token may use, at --listen and at --admin; may be repeated")
	f.StringSliceVar(&c.acceptRisks, "accept-risk", nil, storeflags.RiskUsage+", or "+private.Usage+"; may be repeated")
	c.log.AddFlags(cmd)
	c.log.AddKeysFlag(cmd)
	f.DurationVar(&c.shutdownTimeout, "shutdown-timeout", server.DefaultShutdownTimeout, server.ShutdownUsage)
	cli.DocumentEnv(cmd)
}

// file is the URL of the store in the directory of data.
func (c *config) file() string { return "sqlite:" + filepath.Join(c.data, "onlyonce.db") }

// complete fills in the settings that depend on others, and returns an error if any is
// invalid.
func (c *config) complete(cmd *cobra.Command) error {
	if c.tokens != "" && !cmd.Flags().Changed("allow-anonymous") {
		c.allowAnonymous = false
	}
	if c.tokens == "" && cmd.Flags().Changed("tokens") {
		return cli.Usagef("--tokens is empty, so callers would need no token: name a file, or leave --tokens out")
	}
	if c.consoleTokens != "" && c.admin == "" {
		return cli.Usagef("--console-tokens (%s) needs --admin: the console is served there, and never at --listen", cli.EnvName("console-tokens"))
	}
	switch {
	case c.storeFile != "" && c.store != "":
		return storeflags.ErrBoth
	case c.storeFile != "":
		var err error
		if c.store, err = storeurl.ReadFile(c.storeFile, c.acceptRisks); err != nil {
			return err
		}
	case c.store == "":
		c.store = c.file()
	}
	if !c.allowAnonymous && c.tokens == "" {
		return cli.Usagef("no caller could use the server: name a file of tokens with --tokens (%s), or leave --allow-anonymous out", cli.EnvName("tokens"))
	}
	if c.sandboxesMaxSessions < 1 {
		return cli.Usagef("--sandboxes-max-sessions (%s) is %d: write at least 1", cli.EnvName("sandboxes-max-sessions"), c.sandboxesMaxSessions)
	}
	if c.sandboxesMaxExtend < 1 {
		return cli.Usagef("--sandboxes-max-extend (%s) is %d: write at least 1", cli.EnvName("sandboxes-max-extend"), c.sandboxesMaxExtend)
	}
	if c.sandboxesIdleTimeout%time.Second != 0 {
		return cli.Usagef("--sandboxes-idle-timeout (%s) is %v: write whole seconds", cli.EnvName("sandboxes-idle-timeout"), c.sandboxesIdleTimeout)
	}
	if err := c.orders.broker.Check(); err != nil {
		return err
	}
	for flag, text := range map[string]string{
		"wait":        cli.DurationMistake(c.wait, "0s for not at all"),
		"purge-every": cli.DurationMistake(time.Duration(c.purgeEvery), off),
	} {
		if text != "" {
			return cli.Usagef("--%s (%s): %s", flag, cli.EnvName(flag), text)
		}
	}
	durations := c.orders.durations()
	maps.Copy(durations, map[string]time.Duration{
		"items-keep":             c.itemsKeep,
		"sandboxes-keep":         c.sandboxesKeep,
		"sandboxes-idle-timeout": c.sandboxesIdleTimeout,
		"lease":                  c.lease,
		"shutdown-timeout":       c.shutdownTimeout,
	})
	for flag, set := range durations {
		if text := cli.DurationMistake(set, ""); text != "" {
			return cli.Usagef("--%s (%s): %s", flag, cli.EnvName(flag), text)
		}
	}
	return nil
}

// hosts returns the names under which a server at an address may be called, beside
// localhost.
func (c *config) hosts(address string) []string {
	return server.Hosts(address, c.allowHosts...)
}

// listener listens, but not to other machines for anonymous callers unless that
// was asked for.
func (c *config) listener() (net.Listener, error) {
	ln, err := net.Listen("tcp", c.listen)
	if err != nil {
		return nil, fmt.Errorf("%w; name another address with --listen", err)
	}
	if c.allowAnonymous && !c.anonymousBeyond && !ln.Addr().(*net.TCPAddr).IP.IsLoopback() {
		ln.Close()
		return nil, cli.Usagef("%s can be reached from other machines, and callers need no token: listen on 127.0.0.1, or name a file of tokens with --tokens, or pass --allow-anonymous-beyond-loopback", c.listen)
	}
	return ln, nil
}
