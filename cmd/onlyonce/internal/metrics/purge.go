package metrics

import (
	"context"
	"log/slog"

	"github.com/onlyonce-go/onlyonce"
)

// Purges returns the Observer of a store's purges, which counts and logs them. The name
// is the store's in the metrics.
func (m *Set) Purges(name string, log *slog.Logger) onlyonce.Observer {
	return Tee(m.cleanup(name), m.StoreErrors(name).Observe, onlyonce.SlogObserver(log, nil))
}

// Tee returns an Observer that tells others, in their order.
func Tee(others ...onlyonce.Observer) onlyonce.Observer {
	return func(ctx context.Context, e onlyonce.Event) {
		for _, o := range others {
			o(ctx, e)
		}
	}
}
