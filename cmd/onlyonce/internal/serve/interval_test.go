package serve

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/metrics"
	"github.com/onlyonce-go/onlyonce/console"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
	"github.com/spf13/cobra"
)

func TestInterval_PurgingCanBeTurnedOff(t *testing.T) {
	for value, want := range map[string]time.Duration{"10m": 10 * time.Minute, "off": sqlstore.NeverPurge} {
		var cfg config
		cmd := &cobra.Command{}
		cfg.addFlags(cmd)
		if err := cmd.ParseFlags([]string{"--data", t.TempDir(), "--purge-every", value}); err != nil {
			t.Fatal(err)
		}
		if err := cfg.complete(cmd); err != nil {
			t.Fatal(err)
		}
		a := app{metrics: metrics.New()}
		if c := a.storeConfig(cfg, "main", nil, console.NewMeter(), slog.New(slog.DiscardHandler)); c.PurgeEvery != want {
			t.Errorf("%s: every %v, want %v", value, c.PurgeEvery, want)
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
