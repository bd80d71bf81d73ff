package logging

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"testing"
)

func TestLogging_TheLogHoldsItsLevelAndWhatIsWorse(t *testing.T) {
	for level, want := range map[string]int{"debug": 4, "info": 3, "warn": 2, "error": 1} {
		for _, format := range []string{"json", "text"} {
			var out bytes.Buffer
			log, err := Config{format, level, ""}.Logger(&out)
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

func TestLogging_ALogShowsNoPasswordAndNoCommandToTheTerminal(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"json", "text"} {
		var out strings.Builder
		log, err := Config{format, "info", ""}.Logger(&out)
		if err != nil {
			t.Fatal(err)
		}
		log.Info("a", "error", os.ErrClosed, "url", "postgres://u:hunter2@h/d", "b", "\u009b\u202e\x7f")
		log.With("url", "postgres://u:hunter2@h/d").Info("b", "error", &os.PathError{Op: "open", Path: "mysql://u:hunter2@h/d", Err: os.ErrClosed})
		text := out.String()
		if strings.Contains(text, "hunter") || strings.ContainsAny(text, "\u009b\u202e\x7f") || !strings.Contains(text, "file already closed") || strings.Count(text, "\n") != 2 {
			t.Errorf("%s", text)
		}
	}
}
