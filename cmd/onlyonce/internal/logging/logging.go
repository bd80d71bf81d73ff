// Package logging makes the log of serve, proxy and relay from their flags.
package logging

import (
	"io"
	"log/slog"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/plain"
	"github.com/spf13/cobra"
)

// A Config says what is logged to standard error, and how.
type Config struct {
	Format string // json or text
	Level  string // the least severe one: debug, info, warn or error
	Keys   string // what is logged of a key: hash or raw; empty: hash
}

// The defaults of the flags.
const (
	DefaultFormat = "json"
	DefaultLevel  = "info"
	DefaultKeys   = "hash"
)

// AddFlags declares --log-format and --log-level.
func (c *Config) AddFlags(cmd *cobra.Command) { AddFlags(cmd, &c.Format, &c.Level) }

// AddKeysFlag declares --log-keys, which says what is logged of a key.
func (c *Config) AddKeysFlag(cmd *cobra.Command) { AddKeysFlag(cmd, &c.Keys) }

// AddFlags declares --log-format and --log-level for settings that are kept elsewhere
// than in a Config.
func AddFlags(cmd *cobra.Command, format, level *string) {
	f := cmd.Flags()
	f.StringVar(format, "log-format", DefaultFormat, "format of the log on standard error: json or text")
	f.StringVar(level, "log-level", DefaultLevel, "lowest level that is logged: debug, info, warn or error")
	cli.CompleteValues(cmd, "log-format", "json", "text")
	cli.CompleteValues(cmd, "log-level", "debug", "info", "warn", "error")
}

// AddKeysFlag declares --log-keys for such settings.
func AddKeysFlag(cmd *cobra.Command, keys *string) {
	cmd.Flags().StringVar(keys, "log-keys", DefaultKeys, "how idempotency keys are logged: `hash or raw`; anyone who knows a key and its request can read the stored response")
	cli.CompleteValues(cmd, "log-keys", "hash", "raw")
}

// ShowKey returns what onlyonce.SlogObserver writes of a key, or nil for its hash.
func (c Config) ShowKey() func(onlyonce.ID) string {
	if c.Keys == "raw" {
		return func(id onlyonce.ID) string { return id.Key }
	}
	return nil
}

var logLevels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

// Logger returns a logger that writes to w. It masks passwords in URLs.
func (c Config) Logger(w io.Writer) (*slog.Logger, error) {
	if c.Keys != "" && c.Keys != "hash" && c.Keys != "raw" {
		return nil, cli.Usagef("invalid value %q for --log-keys: write hash or raw", c.Keys)
	}
	level, ok := logLevels[c.Level]
	if !ok {
		return nil, cli.Usagef("invalid value %q for --log-level: write debug, info, warn or error", c.Level)
	}
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: masked}
	switch c.Format {
	case "json":
		return slog.New(slog.NewJSONHandler(plain.JSONTo(w), options)), nil
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	}
	return nil, cli.Usagef("invalid value %q for --log-format: write json or text", c.Format)
}

// masked replaces passwords in what is logged.
func masked(_ []string, a slog.Attr) slog.Attr {
	var text string
	switch v := a.Value.Any().(type) {
	case string:
		text = v
	case error:
		text = v.Error()
	default:
		return a
	}
	if safe := plain.Mask(text); safe != text {
		a.Value = slog.StringValue(safe)
	}
	return a
}
