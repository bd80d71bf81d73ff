package main

import (
	"io"
	"log/slog"

	"github.com/spf13/cobra"
)

// A logConfig says what is logged to standard error, and how.
type logConfig struct{ format, level string }

func (c *logConfig) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.format, "log-format", "json", "json or text; the log goes to standard error")
	f.StringVar(&c.level, "log-level", "info", "what is logged: debug, info, warn or error, and what is worse")
	completesLog(cmd)
}

func completesLog(cmd *cobra.Command) {
	completes(cmd, "log-format", "json", "text")
	completes(cmd, "log-level", "debug", "info", "warn", "error")
}

var logLevels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

// logger logs to w.
func (c logConfig) logger(w io.Writer) (*slog.Logger, error) {
	level, ok := logLevels[c.level]
	if !ok {
		return nil, usagef("invalid value %q for --log-level: write debug, info, warn or error", c.level)
	}
	options := &slog.HandlerOptions{Level: level}
	switch c.format {
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	}
	return nil, usagef("invalid value %q for --log-format: write json or text", c.format)
}
