package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

func TestTheLogHoldsItsLevelAndWhatIsWorse(t *testing.T) {
	for level, want := range map[string]int{"debug": 4, "info": 3, "warn": 2, "error": 1} {
		for _, format := range []string{"json", "text"} {
			var out bytes.Buffer
			log, err := logConfig{format, level, ""}.logger(&out)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
				log.Log(t.Context(), l, "said")
			}
			if got := strings.Count(out.String(), "said"); got != want {
				t.Errorf("%s, %s: %d of 4 are logged, want %d", format, level, got, want)
			}
		}
	}
}
