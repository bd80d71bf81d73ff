package promonce

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
)

// page returns the metrics as Prometheus gets them.
func page(t *testing.T, m *Metrics) string {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	if err := r.Register(m); err != nil {
		t.Fatal(err)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// expect checks that the page has the lines.
func expect(t *testing.T, m *Metrics, lines ...string) {
	t.Helper()
	text := page(t, m)
	for _, line := range lines {
		if !strings.Contains("\n"+text, "\n"+line+"\n") {
			t.Errorf("not there: %s\n%s", line, text)
		}
	}
}

func id(key string) onlyonce.ID {
	return onlyonce.ID{Tenant: "acme", Operation: "pay", Key: key}
}

func request(key string) onlyonce.Request {
	return onlyonce.Request{ID: id(key), Fingerprint: onlyonce.Fingerprint([]byte(key))}
}

// event returns an event about a command.
func event(outcome onlyonce.Outcome) onlyonce.Event {
	return onlyonce.Event{Outcome: outcome, Duration: 30 * time.Millisecond, Record: onlyonce.Record{ID: id("k"), State: onlyonce.StateCompleted}}
}

func TestMetrics_EachDecisionOfAGuardIsCounted(t *testing.T) {
	m := New(Config{})
	store := memstore.New(memstore.Config{})
	records := m.Store("main")
	records.Watch(store)
	api := records.API("payments")
	g := onlyonce.New(store, onlyonce.Config{Observer: api.Observe, HoldUnknown: true})
	api.Watch(g)
	expect(t, m, `onlyonce_idempotency_hit_rate{api="payments"} NaN`)
	do := func(req onlyonce.Request, err error) {
		_, _ = onlyonce.Do(t.Context(), g, req, func(context.Context) (int, error) {
			expect(t, m, `onlyonce_idempotency_active_requests{api="payments"} 1`)
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
	expect(
		t, m,
		`onlyonce_idempotency_requests_total{api="payments",operation="pay",outcome="executed"} 1`,
		`onlyonce_idempotency_requests_total{api="payments",operation="pay",outcome="replayed"} 1`,
		`onlyonce_idempotency_requests_total{api="payments",operation="pay",outcome="mismatch"} 1`,
		`onlyonce_idempotency_requests_total{api="payments",operation="pay",outcome="in_flight"} 3`,
		`onlyonce_idempotency_requests_total{api="payments",operation="pay",outcome="failed"} 1`,
		`onlyonce_idempotency_requests_total{api="payments",operation="pay",outcome="unknown"} 1`,
		`onlyonce_idempotency_requests_total{api="payments",operation="pay",outcome="held"} 1`,
		`onlyonce_idempotency_conflicts_total{api="payments"} 1`,
		`onlyonce_idempotency_duration_seconds_count{api="payments",outcome="executed"} 1`,
		`onlyonce_idempotency_duration_seconds_count{api="payments",outcome="replayed"} 1`,
		`onlyonce_idempotency_hit_rate{api="payments"} 33.333333333333336`,
		`onlyonce_idempotency_active_requests{api="payments"} 0`,
		`onlyonce_idempotency_unresolved{store="main"} 1`,
	)
}

func TestMetrics_EveryOutcomeMovesItsOwnSeriesAndNoOther(t *testing.T) {
	for outcome := range outcomes {
		m := New(Config{})
		e := event(outcome)
		if outcome == released {
			e.Outcome, e.Record.State = onlyonce.OutcomeExecuted, ""
		}
		m.Store("main").API("a").Observe(t.Context(), e)
		expect(t, m, fmt.Sprintf(`onlyonce_idempotency_requests_total{api="a",operation="pay",outcome=%q} 1`, outcome))
		if n := testutil.CollectAndCount(m, "onlyonce_idempotency_requests_total"); n != 1 {
			t.Errorf("%s moved %d series", outcome, n)
		}
	}
}

func TestMetrics_NoEventPutsATenantAKeyOrAnUnboundedValueIntoALabel(t *testing.T) {
	m := New(Config{MaxOperations: 5})
	a := m.Store("main").API("mail")
	hostile := []string{"bad \xff utf-8", strings.Repeat("x", longestOperation+1)}
	for i := range 1000 {
		hostile = append(hostile, fmt.Sprintf("op-%d\n\"}", i))
	}
	for i, operation := range hostile {
		e := event(onlyonce.OutcomeExecuted)
		e.Record.ID = onlyonce.ID{Tenant: fmt.Sprint("tenant-", i), Operation: operation, Key: fmt.Sprint("key-", i)}
		e.Record.Result.Ref, e.Record.Owner, e.Err = "ref-1", "owner-1", errors.New("err-1")
		a.Observe(t.Context(), e)
		e.Outcome = onlyonce.Outcome(fmt.Sprint("outcome-", i))
		a.Observe(t.Context(), e)
		a.store.observe(&e)
	}
	expect(
		t, m,
		`onlyonce_idempotency_requests_total{api="mail",operation="op-4\n\"}",outcome="executed"} 1`,
		`onlyonce_idempotency_requests_total{api="mail",operation="other",outcome="executed"} 997`,
		`onlyonce_idempotency_requests_total{api="mail",operation="other",outcome="other"} 997`,
	)
	text := page(t, m)
	if n := strings.Count(text, "\nonlyonce_idempotency_requests_total{"); n != 12 {
		t.Errorf("%d series, want 12", n)
	}
	for _, secret := range []string{"tenant-", "key-", "ref-", "owner-", "err-", "outcome-", "xxxx"} {
		if strings.Contains(text, secret) {
			t.Errorf("%s… is in the metrics", secret)
		}
	}
}

func TestStore_PurgesAreCountedAndTheirLagGrowsUntilOneSucceeds(t *testing.T) {
	m := New(Config{})
	now := time.Now()
	m.now = func() time.Time { return now }
	s := m.Store("main")
	if text := page(t, m); strings.Contains(text, "onlyonce_cleanup") {
		t.Errorf("a store that is not purged has metrics of cleanup:\n%s", text)
	}
	observe := s.Purges()
	expect(t, m, `onlyonce_cleanup_lag_seconds{store="main"} 0`, `onlyonce_cleanup_errors_total{store="main"} 0`)
	now = now.Add(time.Minute)
	observe(t.Context(), onlyonce.Event{Outcome: onlyonce.OutcomePurged, Purged: 3, Err: errors.New("the store is down")})
	expect(
		t, m,
		`onlyonce_cleanup_lag_seconds{store="main"} 60`, `onlyonce_cleanup_errors_total{store="main"} 1`,
		`onlyonce_cleanup_last_records{store="main"} 3`, `onlyonce_store_errors_total{kind="unavailable",store="main"} 1`,
	)
	s.API("a").Observe(t.Context(), onlyonce.Event{Outcome: onlyonce.OutcomePurged, Purged: 2}) // by Guard.Purge
	now = now.Add(time.Second)
	expect(
		t, m,
		`onlyonce_cleanup_lag_seconds{store="main"} 1`, `onlyonce_cleanup_errors_total{store="main"} 1`,
		`onlyonce_cleanup_last_records{store="main"} 2`, `onlyonce_cleanup_records_total{store="main"} 5`,
	)
}

func TestStore_ErrorsAreCountedByKind(t *testing.T) {
	full := errors.New("no room")
	m := New(Config{ErrorKind: func(err error) ErrorKind {
		if errors.Is(err, full) {
			return KindFull
		}
		return "a kind of my own"
	}})
	a := m.Store("main").API("a")
	for _, e := range []onlyonce.Event{
		{Outcome: onlyonce.OutcomeCorrupt, Err: errors.New("bad JSON")},
		{Outcome: onlyonce.OutcomeUnavailable, Err: full},
		{Outcome: onlyonce.OutcomeUnrecorded, Err: errors.New("?")},
		{Outcome: onlyonce.OutcomeUnknown, Err: fmt.Errorf("%w: %w", onlyonce.ErrInDoubt, full)},
		{Outcome: onlyonce.OutcomeUnknown, Err: errors.New("the function's own")},
		{Outcome: onlyonce.OutcomeFailed, Err: errors.New("the function's own")},
		{Outcome: onlyonce.OutcomeUnavailable, Err: context.Canceled},
	} {
		a.Observe(t.Context(), e)
	}
	expect(
		t, m,
		`onlyonce_store_errors_total{kind="corrupt",store="main"} 1`, `onlyonce_store_errors_total{kind="full",store="main"} 2`,
		`onlyonce_store_errors_total{kind="other",store="main"} 1`, `onlyonce_store_errors_total{kind="unavailable",store="main"} 0`,
	)
	if KindOf(fmt.Errorf("x: %w", onlyonce.ErrCorrupt)) != KindCorrupt || KindOf(full) != KindUnavailable {
		t.Error("KindOf does not know ErrCorrupt, or any other error is not unavailable")
	}
}

// backlog is a queue of which only the lag is asked.
type backlog struct {
	outbox.Queue
	lag outbox.Lag
	err error
}

func (b *backlog) Lag(context.Context) (outbox.Lag, error) { return b.lag, b.err }

func TestOutbox_SaysWhatWaitsAndCountsWhatTheRelayDid(t *testing.T) {
	m := New(Config{})
	queue := &backlog{lag: outbox.Lag{Waiting: 4, Oldest: 90 * time.Second, Parked: 2}}
	o := m.Store("main").Outbox(queue)
	expect(
		t, m, `onlyonce_outbox_waiting 4`, `onlyonce_outbox_oldest_seconds 90`, `onlyonce_outbox_parked 2`,
		`onlyonce_outbox_messages_total{outcome="published"} 0`,
	)
	for _, e := range []outbox.Event{
		{Outcome: outbox.OutcomePublished, Count: 3},
		{Outcome: outbox.OutcomeParked, Count: 1},
		{Outcome: outbox.OutcomeTrouble, Err: errors.New("away")},
		{Outcome: outbox.OutcomeLag, Lag: queue.lag, Count: 7},
		{Outcome: "of a later version", Count: 7},
	} {
		o.Observe(t.Context(), e)
	}
	queue.err = errors.New("away")
	text := page(t, m)
	if strings.Contains(text, "onlyonce_outbox_waiting") || strings.Contains(text, `"lag"`) || strings.Contains(text, "later") {
		t.Errorf("a queue that is away has a backlog, or a lag is counted:\n%s", text)
	}
	expect(
		t, m, `onlyonce_outbox_messages_total{outcome="published"} 3`, `onlyonce_outbox_messages_total{outcome="parked"} 1`,
		`onlyonce_outbox_messages_total{outcome="trouble"} 0`, `onlyonce_store_errors_total{kind="unavailable",store="main"} 1`,
	)
}

func TestMetrics_FollowTheConventionsOfPrometheus(t *testing.T) {
	m := New(Config{})
	s := m.Store("main")
	s.Purges()
	s.Watch(memstore.New(memstore.Config{}))
	s.Outbox(&backlog{})
	api := s.API("a")
	api.Watch(onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{}))
	api.Observe(t.Context(), event(onlyonce.OutcomeExecuted))
	text := page(t, m)
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "onlyonce_") {
			t.Errorf("the metric %s", line)
		}
	}
}

func TestMetrics_AMistakeInTheWiringPanics(t *testing.T) {
	m := New(Config{})
	m.Store("main").API("a")
	m.Store("main").Outbox(&backlog{})
	for name, wrong := range map[string]func(){
		"a negative limit":      func() { New(Config{MaxOperations: -1}) },
		"an API of two stores":  func() { m.Store("other").API("a") },
		"a second Outbox":       func() { m.Store("main").Outbox(&backlog{}) },
		"a name that is binary": func() { m.Store("\xff") },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s did not panic", name)
				}
			}()
			wrong()
		}()
	}
	m.Store("main").API("a").Observe(t.Context(), event(onlyonce.OutcomeReplayed))
	expect(t, m, `onlyonce_idempotency_hit_rate{api="a"} 100`)
}

func TestMetrics_CanBeUsedAndCollectedConcurrently(t *testing.T) {
	m := New(Config{MaxOperations: 20})
	const callers, each = 8, 500
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			s := m.Store("main")
			a, purged := s.API("a"), s.Purges()
			for i := range each {
				e := event(onlyonce.OutcomeExecuted)
				e.Record.ID.Operation = fmt.Sprint("op-", (i+c)%40)
				a.Observe(t.Context(), e)
				if i%100 == 0 {
					purged(t.Context(), onlyonce.Event{Outcome: onlyonce.OutcomePurged})
					page(t, m)
				}
			}
		})
	}
	all.Wait()
	if got := testutil.CollectAndCount(m, "onlyonce_idempotency_requests_total"); got != 21 {
		t.Errorf("%d series, want 21", got)
	}
	expect(t, m, fmt.Sprintf(`onlyonce_idempotency_duration_seconds_count{api="a",outcome="executed"} %d`, callers*each))
}

// The events of the two most frequent decisions.
var frequent = []onlyonce.Event{event(onlyonce.OutcomeExecuted), event(onlyonce.OutcomeReplayed)}

func TestObserve_AllocatesNothing(t *testing.T) {
	a := New(Config{}).Store("main").API("a")
	for _, e := range frequent {
		a.Observe(t.Context(), e)
		if n := testing.AllocsPerRun(100, func() { a.Observe(t.Context(), e) }); n > 0 {
			t.Errorf("%s: %v allocations", e.Outcome, n)
		}
	}
}

func BenchmarkObserve(b *testing.B) {
	for _, e := range frequent {
		b.Run(string(e.Outcome), func(b *testing.B) {
			a := New(Config{}).Store("main").API("a")
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				a.Observe(ctx, e)
			}
		})
	}
}
