package main

import (
	"io"
	"log/slog"
)

// newLogger logs to w as "json" or "text".
func newLogger(w io.Writer, format string) (*slog.Logger, error) {
	switch format {
	case "json":
		return slog.New(slog.NewJSONHandler(w, nil)), nil
	case "text":
		return slog.New(slog.NewTextHandler(w, nil)), nil
	}
	return nil, usagef("invalid value %q for --log-format: write json or text", format)
}
