package otelonce

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/defaults"
	"github.com/onlyonce-go/onlyonce/outbox"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// A Config controls where and how a Telemetry reports. The zero Config is usable.
type Config struct {
	MeterProvider  metric.MeterProvider // default: otel.GetMeterProvider()
	TracerProvider trace.TracerProvider // default: otel.GetTracerProvider()

	// Attributes are added to every metric and every span. They distinguish several
	// Telemetries of a program, such as those of two stores.
	Attributes []attribute.KeyValue

	// MaxOperations is how many operations have metrics of their own; default 50. All
	// further operations are counted as Other, and so is an operation that is longer than
	// 128 bytes or not UTF-8. It must not be negative.
	MaxOperations int

	// ErrorKind returns the kind of a store's error, one of few. Default: "corrupt" for
	// onlyonce.ErrCorrupt, and "unavailable" for any other one.
	ErrorKind func(error) string
}

// Other is the value of onlyonce.operation for all operations that have no metrics of their
// own, and the value of onlyonce.outcome for an outcome that this package does not know.
const Other = "other"

// scope names the instrumentation.
const scope = "github.com/onlyonce-go/onlyonce/adapters/otelonce"

// The keys of the attributes.
const (
	keyOperation = attribute.Key("onlyonce.operation")
	keyOutcome   = attribute.Key("onlyonce.outcome")
	keyKind      = attribute.Key("onlyonce.kind")
	keyAttempt   = attribute.Key("onlyonce.attempt")
	keyRecordID  = attribute.Key("onlyonce.record_id")
)

// A Telemetry reports the decisions about the commands of one store. It is safe for
// concurrent use.
type Telemetry struct {
	cfg         Config
	tracer      trace.Tracer
	instruments instruments
	common      metric.MeasurementOption // Config.Attributes
	operations  operations
	points      atomic.Pointer[map[series]*point] // replaced by each new one

	hits, misses atomic.Int64

	mu     sync.Mutex // guards the fields below, and the replacement of points
	guards []InFlighter
	store  Unresolver
	queue  outbox.Queue
	purged time.Time // when a purge last succeeded; zero: none was reported
}

// New returns a Telemetry. It returns an error if the MeterProvider rejects an instrument, and
// panics on an invalid Config.
func New(cfg Config) (*Telemetry, error) {
	if cfg.MaxOperations < 0 {
		panic("otelonce: Config.MaxOperations is negative: set it to a positive number, or leave it 0 for 50")
	}
	if cfg.MaxOperations == 0 {
		cfg.MaxOperations = 50
	}
	if cfg.MeterProvider == nil {
		cfg.MeterProvider = otel.GetMeterProvider()
	}
	if cfg.TracerProvider == nil {
		cfg.TracerProvider = otel.GetTracerProvider()
	}
	if cfg.ErrorKind == nil {
		cfg.ErrorKind = kindOf
	}
	cfg.Attributes = slices.Clone(cfg.Attributes)
	t := &Telemetry{
		cfg: cfg, tracer: cfg.TracerProvider.Tracer(scope),
		common:     metric.WithAttributeSet(attribute.NewSet(cfg.Attributes...)),
		operations: operations{most: cfg.MaxOperations, names: make(map[string]bool)},
	}
	t.points.Store(new(map[series]*point))
	if err := t.instruments.make(cfg.MeterProvider.Meter(scope), t.report); err != nil {
		return nil, fmt.Errorf("otelonce: make the instruments: %w", err)
	}
	return t, nil
}

func kindOf(err error) string {
	if errors.Is(err, onlyonce.ErrCorrupt) {
		return "corrupt"
	}
	return "unavailable"
}

// An InFlighter counts requests that are being handled, as a Guard does.
type InFlighter interface{ InFlight() int }

// An Unresolver counts the records with an unknown outcome, and says for how long the
// oldest of them has had it. The stores of Onlyonce are Unresolvers.
type Unresolver interface {
	Unresolved(ctx context.Context) (n int, oldest time.Duration, err error)
}

// WatchGuard reports the number of requests that g is handling. Several Guards are added up.
func (t *Telemetry) WatchGuard(g InFlighter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.guards = append(t.guards, g)
}

// WatchStore reports the number and the age of the store's unresolved records, if store is an
// Unresolver. The store is called each time the metrics are collected, for at most two
// seconds.
func (t *Telemetry) WatchStore(store any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.store, _ = store.(Unresolver)
}

// WatchOutbox reports the messages that wait in the queue. The queue is called each time the metrics
// are collected, for at most two seconds.
func (t *Telemetry) WatchOutbox(queue outbox.Queue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queue = queue
}

// report reports the measurements that are not counted from events. What a store or a queue does not say in time
// is left out.
func (t *Telemetry) report(ctx context.Context, o metric.Observer) error {
	t.mu.Lock()
	guards, store, queue, purged := t.guards, t.store, t.queue, t.purged
	t.mu.Unlock()
	i := &t.instruments
	if hits, misses := float64(t.hits.Load()), float64(t.misses.Load()); hits+misses > 0 {
		o.ObserveFloat64(i.hitRate, 100*hits/(hits+misses), t.common)
	}
	if len(guards) > 0 {
		n := 0
		for _, g := range guards {
			n += g.InFlight()
		}
		o.ObserveInt64(i.active, int64(n), t.common)
	}
	if !purged.IsZero() {
		o.ObserveFloat64(i.cleanupLag, time.Since(purged).Seconds(), t.common)
	}
	ctx, cancel := context.WithTimeout(ctx, defaults.CountWithin)
	defer cancel()
	if store != nil {
		if n, oldest, err := store.Unresolved(ctx); err == nil {
			o.ObserveInt64(i.unresolved, int64(n), t.common)
			o.ObserveFloat64(i.unresolvedOldest, oldest.Seconds(), t.common)
		}
	}
	if queue != nil {
		if lag, err := queue.Lag(ctx); err == nil {
			o.ObserveInt64(i.waiting, int64(lag.Waiting), t.common)
			o.ObserveFloat64(i.outboxOldest, lag.Oldest.Seconds(), t.common)
			o.ObserveInt64(i.parked, int64(lag.Parked), t.common)
		}
	}
	return nil
}
