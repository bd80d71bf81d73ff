package proxycmd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/logging"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/proxyfile"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/server"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/storeflags"
	"github.com/onlyonce-go/onlyonce/internal/storeurl/private"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A config has the settings from proxy's flags and environment.
type config struct {
	config string // the file; "": the flags have all settings
	print  bool   // --print-config
	check  bool   // --check-config

	flagSettings *proxyfile.File
	up           proxyfile.Upstream // the only one that flags describe
}

// addFlags declares the flags, each with its environment variable. A flag has the default
// of its setting (see proxyfile.New).
func (c *config) addFlags(cmd *cobra.Command) {
	c.flagSettings, c.up = proxyfile.New(), proxyfile.NewUpstream()
	s, t, d, f := c.flagSettings, &c.flagSettings.Tenant, &c.flagSettings.Defaults, cmd.Flags()
	f.SortFlags = false
	f.StringVar(&c.up.URL, "upstream", "", "`URL` of the upstream server, such as http://127.0.0.1:3000")
	f.StringVar(&s.Listen, "listen", s.Listen, "`address` to listen on; port 0 takes a free one")
	f.StringVar(&s.Admin, "admin", "", "`address` for /healthz, /readyz, /metrics and the console, such as 127.0.0.1:9090 (default: none)")
	f.StringVar(&s.Console.Tokens, "console-tokens", "", server.ConsoleTokensUsage)
	f.StringSliceVar(&s.Console.Redact, "console-redact", nil, server.ConsoleRedactUsage)
	f.StringVar(&s.Store.URL, "store", s.Store.URL, "`URL` of the store: memory://, sqlite:PATH, postgres://…, mysql://…, redis://…, nats://…, etcd://… or dynamodb://…")
	f.StringVar(&s.Store.URLFile, "store-file", "", storeflags.FileUsage)
	f.StringVar(&s.Store.FingerprintSecretFile, "fingerprint-secret-file", "", storeflags.SecretUsage)
	f.StringVar(&s.Store.EncryptionKeysFile, "encryption-keys-file", "", storeflags.KeysUsage)
	f.BoolVar(&s.Store.AcceptPlaintext, "accept-plaintext", false, storeflags.PlaintextUsage)
	f.BoolVar(&s.Store.NoMigrate, "no-migrate", false, "never create or change tables; if they are not up to date, do not start: run onlyonce migrate first")
	f.StringVar(&t.Header, "tenant-header", "", "`name` of the request header with the tenant; the server in front of the proxy must set it, and replace any value from a client")
	f.Var(&t.From, "tenant-header-from", "`addresses` from which that header is trusted, such as 10.0.0.0/8; from other addresses, it is dropped (default: this machine, or with --tls-client-ca clients with a certificate)")
	f.StringVar(&t.JWT.Claim, "tenant-claim", "", "`name` of the claim with the tenant, in the token of Authorization: Bearer")
	f.StringVar(&t.JWT.JWKS, "jwks", "", "`file or https URL` of the public keys that verify the token")
	f.StringVar(&t.JWT.CA, "jwks-ca", "", "CA `file` for that URL (default: the system's)")
	f.StringVar(&t.JWT.Issuer, "issuer", "", "required `value` of the token's iss")
	f.StringVar(&t.JWT.Audience, "audience", "", "`value` that the token's aud must contain")
	f.BoolVar(&t.Authorization, "tenant-authorization", false, "each distinct Authorization header is a tenant")
	f.BoolVar(&t.Single, "single-tenant", false, "all callers share one tenant, and may see each other's responses")
	f.BoolVar(&d.Key.Required, "require-key", false, "reject a POST or PATCH without a key")
	f.DurationVar(&d.Wait, "wait", d.Wait, "how long a retry of a running command waits for its response; 0s: not at all")
	f.DurationVar(&d.Lease, "lease", d.Lease, "how long a command stays locked after the proxy that ran it died")
	f.DurationVar(&d.Keep, "keep", d.Keep, "how long a response is kept and replayed")
	f.DurationVar(&d.Remember, "remember", d.Remember, "how long a key is remembered: a retry that comes later than --keep gets 410; 0s: as long as --keep")
	proxyfile.UnknownPolicies.AddFlag(cmd, &d.Unknown, "unknown", d.Unknown, "policy for a retry of a command whose outcome is unknown")
	proxyfile.FingerprintModes.AddFlag(cmd, &d.Fingerprint.Mode, "fingerprint", d.Fingerprint.Mode, "how bodies are compared")
	f.Var(&d.Limits.Response, "max-response", "largest response body that is stored")
	f.StringVar(&s.TLS.Cert, "tls-cert", "", "`file` with the certificate that the proxy presents to clients")
	f.StringVar(&s.TLS.Key, "tls-key", "", "`file` with the private key of the certificate")
	f.StringVar(&s.TLS.ClientCA, "tls-client-ca", "", "CA `file` for client certificates, which are then required")
	f.StringVar(&c.up.TLS.CA, "upstream-ca", "", "CA `file` for the upstream's certificate (default: the system's)")
	f.StringVar(&c.up.TLS.Cert, "upstream-cert", "", "`file` with the certificate that the proxy presents to the upstream")
	f.StringVar(&c.up.TLS.Key, "upstream-key", "", "`file` with the private key of the certificate")
	f.StringSliceVar(&s.AcceptRisks, "accept-risk", nil, storeflags.RiskUsage+", or "+private.Usage+"; may be repeated")
	logging.AddFlags(cmd, &s.LogFormat, &s.LogLevel)
	logging.AddKeysFlag(cmd, &s.LogKeys)
	f.DurationVar(&s.ShutdownTimeout, "shutdown-timeout", s.ShutdownTimeout, server.ShutdownUsage)
	f.StringVar(&c.config, "config", "", "`file` of settings, instead of most flags; see --print-config")
	f.BoolVar(&c.print, "print-config", false, "print the settings as a commented file for --config, and exit")
	f.BoolVar(&c.check, "check-config", false, "check the settings, and exit")
	cli.DocumentEnv(cmd)
}

// settingOf maps each flag to its setting in a file. An error about a setting names the
// flag by it.
var settingOf = map[string]string{
	"upstream": "upstreams[0].url", "listen": "listen", "admin": "admin", "console-tokens": "console.tokens", "console-redact": "console.redact",
	"store": "store.url", "accept-risk": "accept_risks", "store-file": "store.url_file", "fingerprint-secret-file": "store.fingerprint_secret_file",
	"encryption-keys-file": "store.encryption_keys_file", "accept-plaintext": "store.accept_plaintext", "no-migrate": "store.no_migrate",
	"tenant-header": "tenant.header", "tenant-header-from": "tenant.from", "tenant-claim": "tenant.jwt.claim",
	"jwks": "tenant.jwt.jwks", "jwks-ca": "tenant.jwt.ca", "issuer": "tenant.jwt.issuer", "audience": "tenant.jwt.audience",
	"tenant-authorization": "tenant.authorization", "single-tenant": "tenant.single",
	"require-key": "defaults.key.required", "wait": "defaults.wait", "lease": "defaults.lease", "keep": "defaults.keep", "remember": "defaults.remember",
	"unknown": "defaults.unknown", "fingerprint": "defaults.fingerprint.mode", "max-response": "defaults.limits.response",
	"tls-cert": "tls.cert", "tls-key": "tls.key", "tls-client-ca": "tls.client_ca",
	"upstream-ca": "upstreams[0].tls.ca", "upstream-cert": "upstreams[0].tls.cert", "upstream-key": "upstreams[0].tls.key",
	"log-format": "log_format", "log-level": "log_level", "log-keys": "log_keys", "shutdown-timeout": "shutdown_timeout",
}

// overrides are the flags that take precedence over a file, with the setting of each.
var overrides = []struct {
	flag string
	set  func(f, fromFlags *proxyfile.File)
}{
	{"listen", func(f, fromFlags *proxyfile.File) { f.Listen = fromFlags.Listen }},
	{"admin", func(f, fromFlags *proxyfile.File) { f.Admin = fromFlags.Admin }},
	{"console-tokens", func(f, fromFlags *proxyfile.File) { f.Console.Tokens = fromFlags.Console.Tokens }},
	{"console-redact", func(f, fromFlags *proxyfile.File) { f.Console.Redact = fromFlags.Console.Redact }},
	{"store", func(f, fromFlags *proxyfile.File) { f.Store.URL, f.Store.URLFile = fromFlags.Store.URL, "" }},
	{"store-file", func(f, fromFlags *proxyfile.File) {
		f.Store.URL, f.Store.URLFile = proxyfile.New().Store.URL, fromFlags.Store.URLFile
	}},
	{"fingerprint-secret-file", func(f, fromFlags *proxyfile.File) {
		f.Store.FingerprintSecretFile = fromFlags.Store.FingerprintSecretFile
	}},
	{"encryption-keys-file", func(f, fromFlags *proxyfile.File) { f.Store.EncryptionKeysFile = fromFlags.Store.EncryptionKeysFile }},
	{"accept-plaintext", func(f, fromFlags *proxyfile.File) { f.Store.AcceptPlaintext = fromFlags.Store.AcceptPlaintext }},
	{"no-migrate", func(f, fromFlags *proxyfile.File) { f.Store.NoMigrate = fromFlags.Store.NoMigrate }},
	{"accept-risk", func(f, fromFlags *proxyfile.File) { f.AcceptRisks = fromFlags.AcceptRisks }},
	{"log-format", func(f, fromFlags *proxyfile.File) { f.LogFormat = fromFlags.LogFormat }},
	{"log-level", func(f, fromFlags *proxyfile.File) { f.LogLevel = fromFlags.LogLevel }},
	{"log-keys", func(f, fromFlags *proxyfile.File) { f.LogKeys = fromFlags.LogKeys }},
	{"shutdown-timeout", func(f, fromFlags *proxyfile.File) { f.ShutdownTimeout = fromFlags.ShutdownTimeout }},
}

// aboutFile are the flags that are not settings.
var aboutFile = []string{"config", "print-config", "check-config", "help"}

// goesWithFile reports whether a flag is allowed together with --config. With any other
// one, it would not be clear whether the flag or the file counts.
func goesWithFile(flag string) bool {
	for _, o := range overrides {
		if o.flag == flag {
			return true
		}
	}
	return slices.Contains(aboutFile, flag)
}

// read returns the settings from the flags or the file.
func (c *config) read(cmd *cobra.Command) (*proxyfile.File, error) {
	if cmd.Flags().Changed("store") && c.flagSettings.Store.URLFile != "" {
		return nil, storeflags.ErrBoth
	}
	if c.config == "" {
		return c.fromFlags()
	}
	var flagErr error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if flagErr == nil && !goesWithFile(f.Name) {
			flagErr = cli.Usagef("--%s (%s) and --config: write %s into %s instead", f.Name, cli.EnvName(f.Name), settingOf[f.Name], c.config)
		}
	})
	if flagErr != nil {
		return nil, flagErr
	}
	text, err := readFile(c.config)
	if err != nil {
		return nil, fmt.Errorf("read the settings: %w", err)
	}
	f, err := proxyfile.Parse(c.config, text, func(f *proxyfile.File) { c.override(cmd, f) })
	if err != nil {
		return nil, fmt.Errorf("%s is not valid:\n%w", c.config, err)
	}
	return f, nil
}

// readAgain reads the settings again while the proxy serves. It opens only a regular
// file, because a pipe could block this and every later reload forever.
func (c *config) readAgain(cmd *cobra.Command) (*proxyfile.File, error) {
	if info, err := os.Stat(c.config); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read the settings: %s is not a regular file, and only a regular file can be reloaded", c.config)
	}
	return c.read(cmd)
}

// maxFile is how long a file of settings may be, in bytes.
const maxFile = 64 << 20

// readFile reads a file of settings. It does not read on without end, as the file may
// be a device or a pipe.
func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes: check the path", path, maxFile)
	}
	return text, err
}

// override lets flags win over a file.
func (c *config) override(cmd *cobra.Command, f *proxyfile.File) {
	for _, o := range overrides {
		if cmd.Flags().Changed(o.flag) {
			o.set(f, c.flagSettings)
		}
	}
}

// examples are the values that --print-config shows where there is no default.
func (c *config) examples() {
	if c.up.URL == "" {
		c.up.URL = "http://127.0.0.1:3000"
	}
	if t := &c.flagSettings.Tenant; len(t.Sources()) == 0 {
		t.Header = "X-Tenant-ID"
	}
}

// tenantFlags are the flags for the sources of a tenant.
var tenantFlags = map[string]string{"header": "--tenant-header", "jwt": "--tenant-claim", "authorization": "--tenant-authorization", "single": "--single-tenant"}

// fromFlags returns the settings of the flags. Its errors name flags.
func (c *config) fromFlags() (*proxyfile.File, error) {
	if c.print {
		c.examples()
	}
	t := &c.flagSettings.Tenant
	var given []string
	for _, source := range t.Sources() {
		given = append(given, tenantFlags[source])
	}
	tenant := proxyfile.OneSource(given, "no flag says how the tenant of a request is identified: pass exactly one of --tenant-header, --tenant-claim, --tenant-authorization, and --single-tenant for callers that share one tenant")
	switch {
	case c.up.URL == "":
		return nil, cli.Usagef("no upstream is set: pass --upstream (%s), such as http://127.0.0.1:3000, or --config", cli.EnvName("upstream"))
	case slices.Contains(given, tenantFlags["jwt"]) && t.JWT.Claim == "":
		return nil, cli.Usagef("--jwks, --jwks-ca, --issuer and --audience need --tenant-claim: set it too, or leave them out")
	case tenant != "":
		return nil, cli.Usagef("%s", tenant)
	}
	c.flagSettings.Upstreams = []proxyfile.Upstream{c.up}
	if err := c.flagSettings.Check(); err != nil {
		return nil, inFlags(err)
	}
	return c.flagSettings, nil
}

// inFlags names the flags instead of the settings of a file.
func inFlags(err error) error {
	var all proxyfile.Mistakes
	var one proxyfile.Mistake
	switch {
	case errors.As(err, &all):
	case errors.As(err, &one) && one.File == "":
		all = proxyfile.Mistakes{one}
	default:
		return err
	}
	lines := make([]string, len(all))
	for i, m := range all {
		lines[i] = flagOf(m.At) + m.Text
	}
	return cli.Usagef("%s", strings.Join(lines, "\n"))
}

// flagOf names the flag of a setting.
func flagOf(at string) string {
	for flag, setting := range settingOf {
		if at == setting {
			return fmt.Sprintf("--%s (%s): ", flag, cli.EnvName(flag))
		}
	}
	switch {
	case at == "tls":
		return "--tls-cert and --tls-key: "
	case strings.HasSuffix(at, ".tls"):
		return "--upstream-ca, --upstream-cert and --upstream-key: "
	case strings.HasPrefix(at, "tenant.from"):
		return fmt.Sprintf("--tenant-header-from (%s): ", cli.EnvName("tenant-header-from"))
	}
	return ""
}
