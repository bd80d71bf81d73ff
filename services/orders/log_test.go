package orders

import (
	"context"
	"testing"
)

func TestLog_AHitIsLoggedWithTheSizeOfTheBody(t *testing.T) {
	for name, charge := range map[string]bool{"in one transaction": false, "after a charge": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(c *Config) {
				if charge {
					c.Charge = func(context.Context, Charge) (string, error) { return "ch_1", nil }
				}
			})
			same(t, w.place("k1"), w.place("k1"))
			lines := w.log.Lines(t, "idempotency_hit")
			if len(lines) != 1 {
				t.Fatalf("%d lines tell of hits", len(lines))
			}
			if size := len(w.place("k1").Body); lines[0]["response_size"] != float64(size) || lines[0]["status_code"] != float64(201) {
				t.Errorf("logged %v of %d bytes, status %v", lines[0]["response_size"], size, lines[0]["status_code"])
			}
		})
	}
}
