package serve

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

func TestInterval_PurgingCanBeTurnedOff(t *testing.T) {
	for value, want := range map[string]int{"10m": 4, "off": 3} {
		var cfg config
		cmd := &cobra.Command{}
		cfg.addFlags(cmd)
		if err := cmd.ParseFlags([]string{"--data", t.TempDir(), "--purge-every", value}); err != nil {
			t.Fatal(err)
		}
		if err := cfg.complete(cmd); err != nil {
			t.Fatal(err)
		}
		a, err := newApp(t.Context(), cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if n := len(a.background()); n != want {
			t.Errorf("%s: %d tasks, want %d", value, n, want)
		}
		if err := a.close(); err != nil {
			t.Error(err)
		}
	}
}

func TestInterval_AnIntervalIsADurationOrOff(t *testing.T) {
	for text, want := range map[string]interval{"10m": interval(10 * time.Minute), "off": 0, "1h30m": interval(90 * time.Minute)} {
		var i interval
		if err := i.Set(text); err != nil || i != want {
			t.Errorf("%q: %v, %v", text, i, err)
		}
		var again interval
		if err := again.Set(i.String()); err != nil || again != i {
			t.Errorf("%q is written %q, and read %v, %v", text, i.String(), again, err)
		}
	}
	for _, text := range []string{"", "0", "0s", "never", "10", "Off"} {
		var i interval
		if err := i.Set(text); err == nil || !strings.Contains(err.Error(), "or off") {
			t.Errorf("%q: %v, %v", text, i, err)
		}
	}
}
