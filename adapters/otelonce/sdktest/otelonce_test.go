package sdktest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/otelonce"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// A kit is a Telemetry with an SDK that keeps its measurements and spans.
type kit struct {
	*otelonce.Telemetry
	t      testing.TB
	reader *metric.ManualReader
	spans  *tracetest.SpanRecorder
	tracer trace.Tracer // of the program
}

func newKit(t testing.TB, cfg otelonce.Config, sampler sdktrace.Sampler) *kit {
	k := &kit{t: t, reader: metric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	traces := sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler), sdktrace.WithSpanProcessor(k.spans))
	cfg.MeterProvider, cfg.TracerProvider = metric.NewMeterProvider(metric.WithReader(k.reader)), traces
	k.tracer = traces.Tracer("program")
	var err error
	if k.Telemetry, err = otelonce.New(cfg); err != nil {
		t.Fatal(err)
	}
	return k
}

// A measured is a metric as it was collected.
type measured struct {
	unit   string
	kind   string
	points map[string]float64 // by the attributes; of a histogram: the count
}

// collect returns all metrics by name.
func (k *kit) collect() map[string]measured {
	k.t.Helper()
	var all metricdata.ResourceMetrics
	if err := k.reader.Collect(context.Background(), &all); err != nil {
		k.t.Fatal(err)
	}
	found := make(map[string]measured)
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			one := measured{unit: m.Unit, points: make(map[string]float64)}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				one.kind = "counter"
				if !data.IsMonotonic {
					one.kind = "updowncounter"
				}
				for _, p := range data.DataPoints {
					one.points[p.Attributes.Encoded(attribute.DefaultEncoder())] = float64(p.Value)
				}
			case metricdata.Gauge[int64]:
				one.kind = "gauge"
				for _, p := range data.DataPoints {
					one.points[p.Attributes.Encoded(attribute.DefaultEncoder())] = float64(p.Value)
				}
			case metricdata.Gauge[float64]:
				one.kind = "gauge"
				for _, p := range data.DataPoints {
					one.points[p.Attributes.Encoded(attribute.DefaultEncoder())] = p.Value
				}
			case metricdata.Histogram[float64]:
				one.kind = "histogram"
				for _, p := range data.DataPoints {
					one.points[p.Attributes.Encoded(attribute.DefaultEncoder())] = float64(p.Count)
				}
			default:
				k.t.Fatalf("%s is a %T", m.Name, m.Data)
			}
			found[m.Name] = one
		}
	}
	return found
}

func (k *kit) expect(name, attributes string, want float64) {
	k.t.Helper()
	if got, ok := k.collect()[name].points[attributes]; !ok || got != want {
		k.t.Errorf("%s{%s} is %v (there: %v), want %v; there are %v", name, attributes, got, ok, want, k.collect()[name].points)
	}
}

func id(key string) onlyonce.ID {
	return onlyonce.ID{Tenant: "acme", Operation: "pay", Key: key}
}

func request(key string) onlyonce.Request {
	return onlyonce.Request{ID: id(key), Fingerprint: onlyonce.Fingerprint([]byte(key))}
}

func event(outcome onlyonce.Outcome) onlyonce.Event {
	return onlyonce.Event{Outcome: outcome, Duration: 30 * time.Millisecond, Record: onlyonce.Record{ID: id("k"), State: onlyonce.StateCompleted, Attempt: 1}}
}

func TestMetrics_EachDecisionOfAGuardIsMeasured(t *testing.T) {
	k := newKit(t, otelonce.Config{}, sdktrace.NeverSample())
	store := memstore.New(memstore.Config{})
	k.WatchStore(store)
	g := onlyonce.New(store, onlyonce.Config{Observer: k.Observe, HoldUnknown: true, Traceparent: otelonce.Traceparent})
	k.WatchGuard(g)
	do := func(req onlyonce.Request, err error) {
		_, _ = onlyonce.Do(t.Context(), g, req, func(context.Context) (int, error) {
			k.expect("onlyonce.idempotency.active_requests", "", 1)
			_, _ = onlyonce.Do(t.Context(), g, req, func(context.Context) (int, error) { return 0, nil })
			return 1, err
		})
	}
	do(request("a"), nil)
	do(request("a"), nil)
	do(onlyonce.Request{ID: id("a"), Fingerprint: onlyonce.Fingerprint([]byte("other"))}, nil)
	do(request("b"), errors.New("no money"))
	do(request("c"), onlyonce.Unknown(errors.New("no answer")))
	do(request("c"), nil)
	for outcome, n := range map[string]float64{"executed": 1, "replayed": 1, "mismatch": 1, "in_flight": 3, "failed": 1, "unknown": 1, "held": 1} {
		k.expect("onlyonce.idempotency.requests", "onlyonce.operation=pay,onlyonce.outcome="+outcome, n)
	}
	k.expect("onlyonce.idempotency.duration", "onlyonce.outcome=executed", 1)
	k.expect("onlyonce.idempotency.duration", "onlyonce.outcome=replayed", 1)
	k.expect("idempotency.conflicts", "", 1)
	k.expect("idempotency.hit_rate", "", 100./3)
	k.expect("onlyonce.idempotency.active_requests", "", 0)
	k.expect("onlyonce.idempotency.unresolved", "", 1)
}

// backlog is a queue of which only the lag is asked.
type backlog struct{ outbox.Queue }

func (backlog) Lag(context.Context) (outbox.Lag, error) {
	return outbox.Lag{Waiting: 4, Oldest: 90 * time.Second, Parked: 2}, nil
}

func TestMetrics_PurgesErrorsAndTheOutboxAreMeasured(t *testing.T) {
	k := newKit(t, otelonce.Config{Attributes: []attribute.KeyValue{attribute.String("store", "main")}}, sdktrace.NeverSample())
	if _, early := k.collect()["onlyonce.cleanup.lag"]; early {
		t.Error("there is a lag before the first purge")
	}
	k.WatchOutbox(backlog{})
	k.Observe(t.Context(), onlyonce.Event{Outcome: onlyonce.OutcomePurged, Purged: 5})
	k.Observe(t.Context(), onlyonce.Event{Outcome: onlyonce.OutcomePurged, Purged: 3, Err: errors.New("away")})
	k.Observe(t.Context(), onlyonce.Event{Outcome: onlyonce.OutcomeCorrupt, Err: errors.New("bad JSON")})
	k.Observe(t.Context(), onlyonce.Event{Outcome: onlyonce.OutcomeUnavailable, Err: context.Canceled})
	k.Observe(t.Context(), onlyonce.Event{Outcome: onlyonce.OutcomeUnknown, Err: errors.New("the function's own")})
	k.ObserveOutbox(t.Context(), outbox.Event{Outcome: outbox.OutcomePublished, Count: 3})
	k.ObserveOutbox(t.Context(), outbox.Event{Outcome: outbox.OutcomeTrouble, Err: errors.New("away")})
	k.ObserveOutbox(t.Context(), outbox.Event{Outcome: outbox.OutcomeLag, Count: 7})
	k.expect("cleanup.count", "store=main", 3)
	k.expect("onlyonce.cleanup.records", "store=main", 8)
	k.expect("onlyonce.cleanup.errors", "store=main", 1)
	k.expect("onlyonce.store.errors", "onlyonce.kind=unavailable,store=main", 2)
	k.expect("onlyonce.store.errors", "onlyonce.kind=corrupt,store=main", 1)
	k.expect("onlyonce.outbox.messages", "onlyonce.outcome=published,store=main", 3)
	k.expect("onlyonce.outbox.waiting", "store=main", 4)
	k.expect("onlyonce.outbox.oldest", "store=main", 90)
	k.expect("onlyonce.outbox.parked", "store=main", 2)
	if n := len(k.collect()["onlyonce.outbox.messages"].points); n != 2 {
		t.Errorf("%d outcomes of messages, want 2: the lag is none", n)
	}
	if _, there := k.collect()["onlyonce.cleanup.lag"]; !there {
		t.Error("there is no lag after a purge")
	}
}

func TestMetrics_TheTableInTheDocumentIsWhatIsReported(t *testing.T) {
	k := newKit(t, otelonce.Config{}, sdktrace.NeverSample())
	store := memstore.New(memstore.Config{})
	k.WatchStore(store)
	k.WatchOutbox(backlog{})
	k.WatchGuard(onlyonce.New(store, onlyonce.Config{}))
	for _, o := range []onlyonce.Outcome{onlyonce.OutcomeExecuted, onlyonce.OutcomeMismatch, onlyonce.OutcomeCorrupt} {
		k.Observe(t.Context(), event(o))
	}
	k.Observe(t.Context(), onlyonce.Event{Outcome: onlyonce.OutcomePurged})
	k.Observe(t.Context(), onlyonce.Event{Outcome: onlyonce.OutcomePurged, Err: errors.New("away")})
	k.ObserveOutbox(t.Context(), outbox.Event{Outcome: outbox.OutcomePublished, Count: 1})
	text, err := os.ReadFile("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n### OpenTelemetry\n")
	section, _, _ = strings.Cut(section, "\n## ")
	documented := make(map[string]string)
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.ReplaceAll(line, "`", ""), "|")
		if len(cells) == 7 && strings.Contains(line, "| `") {
			documented[strings.TrimSpace(cells[1])] = strings.TrimSpace(cells[2]) + " " + strings.TrimSpace(cells[3])
		}
	}
	reported := make(map[string]string)
	for name, m := range k.collect() {
		reported[name] = m.kind + " " + m.unit
	}
	if !maps.Equal(documented, reported) {
		t.Errorf("docs/metrics.md has\n%v\nreported is\n%v", documented, reported)
	}
}

func TestMetrics_NoEventPutsATenantAKeyOrAnUnboundedValueIntoAnAttribute(t *testing.T) {
	k := newKit(t, otelonce.Config{MaxOperations: 5}, sdktrace.AlwaysSample())
	ctx, root := k.tracer.Start(t.Context(), "request")
	hostile := []string{"bad \xff utf-8", strings.Repeat("x", 129)}
	for i := range 300 {
		hostile = append(hostile, fmt.Sprintf("op-%d\n\"}", i))
	}
	for i, operation := range hostile {
		e := event(onlyonce.OutcomeExecuted)
		e.Record.ID = onlyonce.ID{Tenant: fmt.Sprint("tenant-", i), Operation: operation, Key: fmt.Sprint("key-", i)}
		e.Record.Result.Ref, e.Record.Owner, e.Err = "ref-1", "owner-1", errors.New("err-1")
		k.Observe(ctx, e)
		e.Outcome = onlyonce.Outcome(fmt.Sprint("outcome-", i))
		k.Observe(ctx, e)
	}
	root.End()
	k.expect("onlyonce.idempotency.requests", "onlyonce.operation=other,onlyonce.outcome=executed", 297)
	if n := len(k.collect()["onlyonce.idempotency.requests"].points); n != 12 {
		t.Errorf("%d series, want 12", n)
	}
	all := fmt.Sprint(k.collect())
	names := make(map[string]bool)
	for _, s := range k.spans.Ended() {
		names[s.Name()] = true
		all += fmt.Sprint(s.Name(), s.Attributes(), s.Status(), s.Events())
	}
	for _, secret := range []string{"tenant-", "key-", "ref-", "owner-", "err-", "outcome-", "xxxx", "acme"} {
		if strings.Contains(all, secret) {
			t.Errorf("%s… is in the metrics or spans", secret)
		}
	}
	if got := slices.Sorted(maps.Keys(names)); !slices.Equal(got, []string{"idempotency executed", "idempotency other", "request"}) {
		t.Errorf("the names of the spans are %q", got)
	}
}

func attributesOf(s sdktrace.ReadOnlySpan) map[attribute.Key]attribute.Value {
	all := make(map[attribute.Key]attribute.Value)
	for _, a := range s.Attributes() {
		all[a.Key] = a.Value
	}
	return all
}

func TestSpans_AReplayIsLinkedToTheSpanInWhichTheCommandRan(t *testing.T) {
	k := newKit(t, otelonce.Config{}, sdktrace.AlwaysSample())
	g := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{Observer: k.Observe, Traceparent: otelonce.Traceparent})
	var roots []trace.SpanContext
	for range 2 {
		ctx, root := k.tracer.Start(t.Context(), "request")
		roots = append(roots, root.SpanContext())
		if _, err := onlyonce.Do(ctx, g, request("k"), func(context.Context) (int, error) { return 1, nil }); err != nil {
			t.Fatal(err)
		}
		root.End()
	}
	spans := k.spans.Ended() // executed, request, replayed, request
	if len(spans) != 4 {
		t.Fatalf("%d spans", len(spans))
	}
	executed, replayed := spans[0], spans[2]
	if executed.Name() != "idempotency executed" || executed.Parent().SpanID() != roots[0].SpanID() || len(executed.Links()) != 0 {
		t.Errorf("executed: %q below %v, links %v", executed.Name(), executed.Parent().SpanID(), executed.Links())
	}
	if replayed.Name() != "idempotency replayed" || replayed.Parent().SpanID() != roots[1].SpanID() || replayed.EndTime().Before(replayed.StartTime()) {
		t.Errorf("replayed: %q below %v, from %v to %v", replayed.Name(), replayed.Parent().SpanID(), replayed.StartTime(), replayed.EndTime())
	}
	links := replayed.Links()
	if len(links) != 1 || links[0].SpanContext.TraceID() != roots[0].TraceID() || links[0].SpanContext.SpanID() != roots[0].SpanID() || !links[0].SpanContext.IsSampled() {
		t.Errorf("the replay has the links %v, want one to %v", links, roots[0])
	}
	hash := id("k").Hash()
	at := attributesOf(replayed)
	if at["onlyonce.operation"].AsString() != "pay" || at["onlyonce.outcome"].AsString() != "replayed" || at["onlyonce.attempt"].AsInt64() != 1 ||
		at["onlyonce.record_id"].AsString() != fmt.Sprintf("%x", hash[:8]) || len(at) != 4 {
		t.Errorf("the attributes are %v", at)
	}
}

func TestSpans_OnlyACallerWithARecordingSpanGetsOneAndAFailureIsAnError(t *testing.T) {
	k := newKit(t, otelonce.Config{}, sdktrace.ParentBased(sdktrace.AlwaysSample()))
	k.Observe(t.Context(), event(onlyonce.OutcomeFailed))
	unsampled := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}}))
	k.Observe(unsampled, event(onlyonce.OutcomeFailed))
	if text := otelonce.Traceparent(unsampled); text != "" {
		t.Errorf("a span that is not sampled is kept as %q", text)
	}
	if n := len(k.spans.Ended()); n != 0 {
		t.Errorf("%d spans without a caller's", n)
	}
	ctx, root := k.tracer.Start(t.Context(), "request")
	k.Observe(ctx, event(onlyonce.OutcomeFailed))
	e := event(onlyonce.OutcomeReplayed)
	e.Record.Result.Traceparent = "00-00000000000000000000000000000000-0000000000000000-01" // of a damaged record
	k.Observe(ctx, e)
	root.End()
	spans := k.spans.Ended()
	if len(spans) != 3 || spans[0].Status().Code != codes.Error || spans[0].Status().Description != "failed" || spans[1].Status().Code != codes.Unset || len(spans[1].Links()) != 0 {
		t.Errorf("the spans are %+v", spans)
	}
}

func TestTelemetry_CanBeUsedAndCollectedConcurrently(t *testing.T) {
	k := newKit(t, otelonce.Config{MaxOperations: 20}, sdktrace.AlwaysSample())
	const callers, each = 8, 300
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			ctx, root := k.tracer.Start(t.Context(), "request")
			defer root.End()
			for i := range each {
				e := event(onlyonce.OutcomeExecuted)
				e.Record.ID.Operation = fmt.Sprint("op-", (i+c)%40)
				k.Observe(ctx, e)
				if i%100 == 0 {
					k.Observe(ctx, onlyonce.Event{Outcome: onlyonce.OutcomePurged})
					k.collect()
				}
			}
		})
	}
	all.Wait()
	if n := len(k.collect()["onlyonce.idempotency.requests"].points); n != 21 {
		t.Errorf("%d series, want 21", n)
	}
	k.expect("onlyonce.idempotency.duration", "onlyonce.outcome=executed", callers*each)
}

// The events of the two most frequent decisions.
var frequent = []onlyonce.Event{event(onlyonce.OutcomeExecuted), event(onlyonce.OutcomeReplayed)}

func TestObserve_AllocatesAtMostTwiceWithoutASampledSpan(t *testing.T) {
	k := newKit(t, otelonce.Config{}, sdktrace.NeverSample())
	ctx, root := k.tracer.Start(t.Context(), "request")
	defer root.End()
	for _, e := range frequent {
		observe := func() {
			if otelonce.Traceparent(ctx) != "" {
				t.Error("the span is sampled")
			}
			k.Observe(ctx, e)
		}
		observe()
		if n := testing.AllocsPerRun(100, observe); n > 2 {
			t.Errorf("%s: %v allocations", e.Outcome, n)
		}
	}
}

func BenchmarkObserve(b *testing.B) {
	for name, sampler := range map[string]sdktrace.Sampler{"unsampled": sdktrace.NeverSample(), "sampled": sdktrace.AlwaysSample()} {
		for _, e := range frequent {
			b.Run(name+"/"+string(e.Outcome), func(b *testing.B) {
				k := newKit(b, otelonce.Config{}, sampler)
				ctx, root := sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler)).Tracer("program").Start(b.Context(), "request")
				defer root.End()
				b.ReportAllocs()
				for b.Loop() {
					_ = otelonce.Traceparent(ctx)
					k.Observe(ctx, e)
				}
			})
		}
	}
}
