// Package logging makes the log of serve, proxy and relay from their flags.
package logging

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/plain"
	"github.com/spf13/cobra"
)

// A Config determines which lines are logged to standard error, and how.
type Config struct {
	Format string // one of Formats
	Level  string // the least severe one, of Levels
	Keys   string // how keys are logged, of Keys; empty: the default
}

// The defaults of the flags.
const (
	DefaultFormat = "json"
	DefaultLevel  = "info"
	DefaultKeys   = "hash"
)

const (
	textFormat = "text"
	rawKeys    = "raw"
)

// The values of the flags.
var (
	Formats = cli.Choice{DefaultFormat, textFormat}
	Levels  = cli.Choice{"debug", DefaultLevel, "warn", "error"}
	Keys    = cli.Choice{DefaultKeys, rawKeys}
)

// AddFlags declares --log-format and --log-level.
func (c *Config) AddFlags(cmd *cobra.Command) { AddFlags(cmd, &c.Format, &c.Level) }

// AddKeysFlag declares --log-keys, which determines how keys are logged.
func (c *Config) AddKeysFlag(cmd *cobra.Command) { AddKeysFlag(cmd, &c.Keys) }

// AddFlags declares --log-format and --log-level for settings that are kept elsewhere
// than in a Config.
func AddFlags(cmd *cobra.Command, format, level *string) {
	Formats.AddFlag(cmd, format, "log-format", DefaultFormat, "format of the log on standard error")
	Levels.AddFlag(cmd, level, "log-level", DefaultLevel, "lowest level that is logged")
}

// AddKeysFlag declares --log-keys for such settings.
func AddKeysFlag(cmd *cobra.Command, keys *string) {
	Keys.AddFlag(cmd, keys, "log-keys", DefaultKeys, "how idempotency keys are logged (anyone who knows a key and its request can read the stored response)")
}

// ShowKey returns the function with which onlyonce.SlogObserver formats a key, or nil for its hash.
func (c Config) ShowKey() func(onlyonce.ID) string {
	if c.Keys == rawKeys {
		return func(id onlyonce.ID) string { return id.Key }
	}
	return nil
}

// Logger returns a logger that writes to w. It masks passwords in URLs.
func (c Config) Logger(w io.Writer) (*slog.Logger, error) {
	if err := cmp.Or(Keys.CheckFlag("log-keys", cmp.Or(c.Keys, DefaultKeys)), Levels.CheckFlag("log-level", c.Level), Formats.CheckFlag("log-format", c.Format)); err != nil {
		return nil, err
	}
	options := &slog.HandlerOptions{ReplaceAttr: masked}
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		return nil, fmt.Errorf("read the level of the log: %w", err)
	}
	options.Level = level
	if c.Format == textFormat {
		return slog.New(requestHandler{slog.NewTextHandler(w, options)}), nil
	}
	return slog.New(requestHandler{slog.NewJSONHandler(plain.JSONTo(w), options)}), nil
}

// masked replaces passwords in logged text.
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
