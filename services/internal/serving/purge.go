package serving

import (
	"context"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// PurgeEvery deletes the expired records of the Guard's store at every interval until
// ctx ends; with a negative interval, it deletes none.
func PurgeEvery(ctx context.Context, g *onlyonce.Guard, interval time.Duration) {
	if interval < 0 {
		<-ctx.Done()
		return
	}
	g.PurgeEvery(ctx, interval)
}
