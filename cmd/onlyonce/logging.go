package main

import (
	"io"
	"log/slog"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/plain"
	"github.com/spf13/cobra"
)

// A logConfig says what is logged to standard error, and how.
type logConfig struct{ format, level, keys string }

func (c *logConfig) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.format, "log-format", "json", "json or text; the log goes to standard error")
	f.StringVar(&c.level, "log-level", "info", "the least severe level that is logged: debug, info, warn or error")
	completesLog(cmd)
}

// addKeys declares the flag that says what is logged of a key.
func (c *logConfig) addKeys(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.keys, "log-keys", "hash", "what is logged of an idempotency key: `hash or raw`; whoever knows a key and its request can read the stored response")
	cli.CompleteValues(cmd, "log-keys", "hash", "raw")
}

// showKey is for onlyonce.SlogObserver; nil: the hash.
func (c logConfig) showKey() func(onlyonce.ID) string {
	if c.keys == "raw" {
		return func(id onlyonce.ID) string { return id.Key }
	}
	return nil
}

func completesLog(cmd *cobra.Command) {
	cli.CompleteValues(cmd, "log-format", "json", "text")
	cli.CompleteValues(cmd, "log-level", "debug", "info", "warn", "error")
}

var logLevels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

// logger logs to w.
func (c logConfig) logger(w io.Writer) (*slog.Logger, error) {
	if c.keys != "" && c.keys != "hash" && c.keys != "raw" {
		return nil, cli.Usagef("invalid value %q for --log-keys: write hash or raw", c.keys)
	}
	level, ok := logLevels[c.level]
	if !ok {
		return nil, cli.Usagef("invalid value %q for --log-level: write debug, info, warn or error", c.level)
	}
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: masked}
	switch c.format {
	case "json":
		return slog.New(slog.NewJSONHandler(plain.JSONTo(w), options)), nil
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	}
	return nil, cli.Usagef("invalid value %q for --log-format: write json or text", c.format)
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
