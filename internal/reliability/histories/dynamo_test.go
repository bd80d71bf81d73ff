//go:build linux

package histories

import (
	"testing"
	"time"
)

// dynamoBackend starts a fake of the test's own.
func dynamoBackend(t *testing.T) *DynamoBackend {
	t.Helper()
	b, err := NewDynamoBackend()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func TestHistories_OnDynamoDBAreLinearizable(t *testing.T) {
	b := dynamoBackend(t)
	n := 6_000
	if *calls > 0 {
		n = 10_000 // as many as the other stores have in all of their tests
	}
	p := b.Plan("DynamoDB (a fake)", *seedFlag, scale(n))
	p.Faults = Inject(100*time.Millisecond, append(b.Faults(1), ProcessStops(4), ProcessKills(2))...)
	mustBeLinearizable(t, p)
}
