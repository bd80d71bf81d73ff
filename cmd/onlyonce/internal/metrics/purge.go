package metrics

import (
	"context"
	"log/slog"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// Purge returns a task that deletes what has expired in a store every so often,
// whoever wrote it. The name is the store's in the metrics.
func (m *Set) Purge(name string, store onlyonce.Store, every time.Duration, log *slog.Logger) func(context.Context) error {
	g := onlyonce.New(store, onlyonce.Config{Observer: Tee(m.cleanup(name), onlyonce.SlogObserver(log, nil))})
	return func(ctx context.Context) error {
		g.PurgeEvery(ctx, every)
		return nil
	}
}

// Tee returns an Observer that tells two.
func Tee(one, other onlyonce.Observer) onlyonce.Observer {
	return func(ctx context.Context, e onlyonce.Event) {
		one(ctx, e)
		other(ctx, e)
	}
}
