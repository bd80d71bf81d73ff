package outbox

import (
	"math"
	"testing"
	"time"
)

func TestJitter_ATimeThatNeverEndsStaysLong(t *testing.T) {
	for range 1000 {
		if d := jitter(math.MaxInt64); d < 100*365*24*time.Hour {
			t.Fatalf("jitter gives %v", d)
		}
	}
}
