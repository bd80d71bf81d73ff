package promonce

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A Config controls which metrics a Metrics exports. The zero Config is usable.
type Config struct {
	// MaxOperations is how many operations of an API have series of their own; default
	// 50. All further operations are counted as Other, and so is an operation that is
	// longer than 128 bytes or not UTF-8. It must not be negative.
	MaxOperations int

	// ErrorKind returns the kind of a store's error. Default: KindOf.
	ErrorKind func(error) ErrorKind
}

// Other is the value of the label operation of all operations that have no series of their
// own, and the value of the label outcome of an outcome that this package does not know.
const Other = "other"

// Metrics are the metrics of a program. It is a prometheus.Collector, and safe for
// concurrent use. A metric has no series until its Store, API or Outbox is made.
type Metrics struct {
	maxOperations int
	kindOf        func(error) ErrorKind
	now           func() time.Time

	requests      *prometheus.CounterVec   // by API, operation and outcome
	conflicts     *prometheus.CounterVec   // by API
	duration      *prometheus.HistogramVec // by API and outcome
	cleanedLast   *prometheus.GaugeVec     // by store, as are the others
	cleaned       *prometheus.CounterVec
	cleanupErrors *prometheus.CounterVec
	storeErrors   *prometheus.CounterVec // and by kind
	messages      *prometheus.CounterVec // by outcome

	hitRate, active, unresolved, unresolvedOldest, cleanupLag *prometheus.Desc
	waiting, oldest, parked                                   *prometheus.Desc

	mu     sync.Mutex // guards the fields below
	stores map[string]*Store
	apis   map[string]*API
	outbox *Outbox
}

// New returns metrics without any series. It panics on an invalid Config.
func New(cfg Config) *Metrics {
	if cfg.MaxOperations < 0 {
		panic("promonce: Config.MaxOperations is negative: set it to a positive number, or leave it 0 for 50")
	}
	if cfg.MaxOperations == 0 {
		cfg.MaxOperations = 50
	}
	if cfg.ErrorKind == nil {
		cfg.ErrorKind = KindOf
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &Metrics{
		maxOperations: cfg.MaxOperations,
		kindOf:        cfg.ErrorKind,
		now:           time.Now,
		stores:        make(map[string]*Store),
		apis:          make(map[string]*API),

		requests:  counter("onlyonce_idempotency_requests_total", "Decisions about requests with a key, by API, operation and outcome.", "api", "operation", "outcome"),
		conflicts: counter("onlyonce_idempotency_conflicts_total", "Requests rejected because their key was used for a different request.", "api"),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "onlyonce_idempotency_duration_seconds",
			Help:    "Time from the end of reading a keyed request to its response, executed or replayed.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .2, .5, 1, 2.5, 5, 10, 30},
		}, []string{"api", "outcome"}),
		hitRate: describe("onlyonce_idempotency_hit_rate", "Replayed responses as a percentage of replayed and executed ones since the start; NaN before the first.", "api"),
		active:  describe("onlyonce_idempotency_active_requests", "Requests with a key that are being handled now, including those that wait.", "api"),

		unresolved:       describe("onlyonce_idempotency_unresolved", "Records with an unknown outcome: those recorded as unknown, those whose lease has lapsed, and those in a state that no store writes.", "store"),
		unresolvedOldest: describe("onlyonce_idempotency_unresolved_oldest_seconds", "How long the oldest record with an unknown outcome has had it; 0 if there is none.", "store"),
		cleanedLast: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "onlyonce_cleanup_last_records",
			Help: "Expired records that the last cleanup cycle deleted.",
		}, []string{"store"}),
		cleaned:       counter("onlyonce_cleanup_records_total", "Expired records that were deleted since the start.", "store"),
		cleanupErrors: counter("onlyonce_cleanup_errors_total", "Cleanup cycles that ended with an error.", "store"),
		cleanupLag:    describe("onlyonce_cleanup_lag_seconds", "Time since a cleanup cycle last ended without an error, or since the start; no record that expired earlier is left.", "store"),
		storeErrors:   counter("onlyonce_store_errors_total", "Errors of the store, met by requests, cleanup, the relay and readiness probes, by kind.", "kind", "store"),

		messages: counter("onlyonce_outbox_messages_total", "Messages that the relay of this process has handled, by outcome.", "outcome"),
		waiting:  describe("onlyonce_outbox_waiting", "Messages that are not published yet, not counting parked ones."),
		oldest:   describe("onlyonce_outbox_oldest_seconds", "Age of the oldest message that is not published yet, not counting parked ones; 0 if there is none."),
		parked:   describe("onlyonce_outbox_parked", "Messages that failed too often or can't be published and wait for someone to requeue or discard them."),
	}
}

// vectors returns the metrics that are collectors themselves.
func (m *Metrics) vectors() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.conflicts, m.duration, m.cleanedLast, m.cleaned, m.cleanupErrors, m.storeErrors, m.messages}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, v := range m.vectors() {
		v.Describe(to)
	}
	for _, d := range []*prometheus.Desc{m.hitRate, m.active, m.unresolved, m.unresolvedOldest, m.cleanupLag, m.waiting, m.oldest, m.parked} {
		to <- d
	}
}

// Collect implements prometheus.Collector. It calls the stores and queues that are
// watched, each for at most two seconds. What a store or a queue does not say in that
// time is left out.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	for _, v := range m.vectors() {
		v.Collect(to)
	}
	var ask []interface {
		collect(chan<- prometheus.Metric)
	}
	m.mu.Lock()
	for _, a := range m.apis {
		ask = append(ask, a)
	}
	for _, s := range m.stores {
		ask = append(ask, s)
	}
	if m.outbox != nil {
		ask = append(ask, m.outbox)
	}
	m.mu.Unlock()
	var done sync.WaitGroup
	for _, a := range ask {
		done.Go(func() { a.collect(to) })
	}
	done.Wait()
}

func gauge(to chan<- prometheus.Metric, d *prometheus.Desc, value float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}
