package deploytest

import (
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

// alertRules returns the rules of the file of alerts, by name.
func alertRules(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.Parse([]byte(read(t, "deploy/prometheus/alerts.yaml")), false, model.LegacyValidation, promQL, promslog.NewNopLogger())
	for _, err := range errs {
		t.Error(err)
	}
	if groups == nil || len(groups.Groups) != 1 {
		t.Fatal("deploy/prometheus/alerts.yaml has not one group")
	}
	found := make(map[string]rulefmt.Rule)
	for _, rule := range groups.Groups[0].Rules {
		if _, twice := found[rule.Alert]; twice {
			t.Errorf("%s is there twice", rule.Alert)
		}
		found[rule.Alert] = rule
	}
	return found
}

var promQL = parser.NewParser(parser.Options{})

// documentedMetrics returns the labels of the metrics in docs/metrics.md, by name.
func documentedMetrics(t *testing.T) map[string][]string {
	t.Helper()
	found := make(map[string][]string)
	for line := range strings.Lines(read(t, "docs/metrics.md")) {
		cells := strings.Split(strings.ReplaceAll(line, "`", ""), "|")
		if !strings.HasPrefix(line, "| `onlyonce_") || len(cells) != 8 {
			continue
		}
		names := []string{strings.TrimSpace(cells[1])}
		metricLabels := []string{"job", "instance"} // which Prometheus adds
		for name := range strings.SplitSeq(cells[4], ",") {
			metricLabels = append(metricLabels, strings.TrimSpace(name))
		}
		if strings.TrimSpace(cells[2]) == "histogram" {
			metricLabels = append(metricLabels, "le")
			names = []string{names[0] + "_bucket", names[0] + "_sum", names[0] + "_count"}
		}
		for _, name := range names {
			found[name] = metricLabels
		}
	}
	if len(found) < 20 {
		t.Fatalf("docs/metrics.md lists only %d metrics", len(found))
	}
	return found
}

// checkQuery checks that a query parses, and that it selects documented metrics by
// documented labels and values.
func checkQuery(t *testing.T, where, query string) {
	t.Helper()
	expression, err := promQL.ParseExpr(query)
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return
	}
	metrics, document := documentedMetrics(t), read(t, "docs/metrics.md")
	parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			metricLabels, known := metrics[n.Name]
			if !known && n.Name != "up" {
				t.Errorf("%s: docs/metrics.md has no metric %s", where, n.Name)
			}
			for _, matcher := range n.LabelMatchers {
				if matcher.Name == model.MetricNameLabel || matcher.Name == "job" {
					continue
				}
				if !slices.Contains(metricLabels, matcher.Name) {
					t.Errorf("%s: %s has no label %s", where, n.Name, matcher.Name)
				}
				for value := range strings.SplitSeq(matcher.Value, "|") {
					status := regexp.MustCompile(`^[1-5]xx$`).MatchString(value)
					if !status && !strings.Contains(document, value) && !strings.Contains(read(t, "docs/proxy.md"), "`"+value+"`") {
						t.Errorf("%s: no document names the %s %s", where, matcher.Name, value)
					}
				}
			}
		case *parser.AggregateExpr:
			for _, name := range n.Grouping {
				if name != "job" && name != "instance" && !strings.Contains(document, "`"+name+"`") && name != "le" {
					t.Errorf("%s groups by the label %s, which no metric has", where, name)
				}
			}
		}
		return nil
	})
}

func TestAlerts_NameDocumentedMetricsAndSections(t *testing.T) {
	sections := make(map[string]bool)
	for line := range strings.Lines(read(t, "docs/runbook.md")) {
		if title, ok := strings.CutPrefix(line, "### "); ok {
			sections[strings.TrimSpace(title)] = true
		}
	}
	const runbook = "https://github.com/onlyonce-go/onlyonce/blob/main/docs/runbook.md#"
	all := alertRules(t)
	for name, rule := range all {
		checkQuery(t, name, rule.Expr)
		if severity := rule.Labels["severity"]; severity != "critical" && severity != "warning" {
			t.Errorf("%s has the severity %q", name, severity)
		}
		if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
			t.Errorf("%s lacks a summary or a description", name)
		}
		if got := rule.Annotations["runbook_url"]; got != runbook+strings.ToLower(name) || !sections[name] {
			t.Errorf("%s points to %s; docs/runbook.md needs the section %s", name, got, name)
		}
	}
	for title := range sections {
		if _, known := all[title]; !known && strings.HasPrefix(title, "Onlyonce") {
			t.Errorf("docs/runbook.md has a section about %s, which is no alert", title)
		}
	}
}

// alertCases has for each alert series with which it fires and series with which it must
// not. They have a value every minute, unless step says otherwise, in promtool's notation.
var alertCases = map[string]struct {
	step          time.Duration
	fires, silent []string
}{
	"OnlyonceDown": {
		fires:  []string{`up{job="onlyonce", instance="a"} 1 0x10`},
		silent: []string{`up{job="onlyonce", instance="a"} 1 0 1x10`, `up{job="node", instance="a"} 0x10`},
	},
	"OnlyonceStoreUnavailable": {
		fires: []string{
			`onlyonce_idempotency_requests_total{job="onlyonce", instance="a", api="proxy", operation="POST /x", outcome="unavailable"} _x10 1x10`,
			`onlyonce_idempotency_requests_total{job="onlyonce", instance="a", api="proxy", operation="POST /x", outcome="unavailable"} 5x10 6 7 8x10`,
		},
		silent: []string{
			`onlyonce_idempotency_requests_total{job="onlyonce", instance="a", api="proxy", operation="POST /x", outcome="executed"} 0+10x20`,
		},
	},
	"OnlyonceStoreNotReadable": {
		fires: []string{
			`onlyonce_idempotency_active_requests{job="onlyonce", instance="a", api="proxy"} 0x20
			onlyonce_idempotency_unresolved{job="onlyonce", instance="a", store="main"} 0 0 0 stale
			onlyonce_idempotency_unresolved{job="onlyonce", instance="b", store="main"} 0x20`,
			`onlyonce_idempotency_active_requests{job="onlyonce", instance="a", api="orders"} 0x20
			onlyonce_store_errors_total{job="onlyonce", instance="a", store="main", kind="unavailable"} 0x20
			onlyonce_store_errors_total{job="onlyonce", instance="a", store="orders", kind="unavailable"} 0x20
			onlyonce_idempotency_unresolved{job="onlyonce", instance="a", store="main"} 0x20
			onlyonce_idempotency_unresolved{job="onlyonce", instance="a", store="orders"} 0 0 0 stale`,
		},
		silent: []string{
			`onlyonce_idempotency_active_requests{job="onlyonce", instance="a", api="items"} 0x20
			onlyonce_idempotency_active_requests{job="onlyonce", instance="a", api="orders"} 0x20
			onlyonce_store_errors_total{job="onlyonce", instance="a", store="main", kind="unavailable"} 0+1x20
			onlyonce_idempotency_unresolved{job="onlyonce", instance="a", store="main"} 0x20`,
			`onlyonce_outbox_waiting{job="onlyonce", instance="relay"} 0x20
			onlyonce_store_errors_total{job="onlyonce", instance="relay", store="main", kind="unavailable"} 0x20`,
		},
	},
	"OnlyonceUnprotected": {
		fires:  []string{`onlyonce_idempotency_requests_total{job="onlyonce", api="proxy", operation="POST /x", outcome="unprotected"} _x10 1x5`},
		silent: []string{`onlyonce_idempotency_requests_total{job="onlyonce", api="proxy", operation="POST /x", outcome="unavailable"} 0+1x10`},
	},
	"OnlyonceRecordCorrupt": {
		fires:  []string{`onlyonce_idempotency_requests_total{job="onlyonce", api="orders", operation="CreateOrder", outcome="corrupt"} _x20 1x5`},
		silent: []string{`onlyonce_idempotency_requests_total{job="onlyonce", api="orders", operation="CreateOrder", outcome="mismatch"} 0+1x20`},
	},
	"OnlyonceOutcomeUnknown": {
		fires: []string{
			`onlyonce_idempotency_requests_total{job="onlyonce", api="proxy", operation="POST /x", outcome="unknown"} _x20 1x5`,
			`onlyonce_idempotency_requests_total{job="onlyonce", api="proxy", operation="POST /x", outcome="lost"} 3x20 4x5`,
			`onlyonce_idempotency_requests_total{job="onlyonce", api="proxy", operation="POST /x", outcome="unrecorded"} 3x20 4x5`,
		},
		silent: []string{`onlyonce_idempotency_requests_total{job="onlyonce", api="proxy", operation="POST /x", outcome="held"} 0+1x30`},
	},
	"OnlyonceCommandUnresolved": {
		fires:  []string{`onlyonce_idempotency_unresolved_oldest_seconds{job="onlyonce", instance="a", store="main"} 0+60x40`},
		silent: []string{`onlyonce_idempotency_unresolved_oldest_seconds{job="onlyonce", instance="a", store="main"} 0+60x14 0x20`},
	},
	"OnlyonceManyCommandsUnresolved": {
		fires:  []string{`onlyonce_idempotency_unresolved{job="onlyonce", instance="a", store="main"} 0 150x20`},
		silent: []string{`onlyonce_idempotency_unresolved{job="onlyonce", instance="a", store="main"} 0 100x20`, `onlyonce_idempotency_unresolved{job="onlyonce", instance="a", store="main"} 150x5 0x20`},
	},
	"OnlyonceCommandsFailing": {
		fires: []string{`onlyonce_idempotency_requests_total{job="onlyonce", api="proxy", operation="POST /x", outcome="executed"} 0+90x30
			onlyonce_idempotency_requests_total{job="onlyonce", api="proxy", operation="POST /x", outcome="failed"} 0+10x30`},
		silent: []string{
			`onlyonce_idempotency_requests_total{job="onlyonce", api="proxy", operation="POST /x", outcome="executed"} 0+99x30
			onlyonce_idempotency_requests_total{job="onlyonce", api="proxy", operation="POST /x", outcome="failed"} 0+1x30`,
			`onlyonce_idempotency_requests_total{job="onlyonce", api="proxy", operation="POST /x", outcome="executed"} 0x30
			onlyonce_idempotency_requests_total{job="onlyonce", api="proxy", operation="POST /x", outcome="failed"} 0x30`,
		},
	},
	"OnlyonceErrorRatio": {
		fires: []string{`onlyonce_proxy_requests_total{job="onlyonce", instance="a", code="2xx"} 0+90x30
			onlyonce_proxy_requests_total{job="onlyonce", instance="a", code="5xx"} 0+10x30`},
		silent: []string{
			`onlyonce_proxy_requests_total{job="onlyonce", instance="a", code="2xx"} 0+90x30
			onlyonce_proxy_requests_total{job="onlyonce", instance="a", code="4xx"} 0+90x30
			onlyonce_proxy_requests_total{job="onlyonce", instance="a", code="5xx"} 0+1x30`,
			`onlyonce_proxy_requests_total{job="onlyonce", instance="a", code="2xx"} 0x30
			onlyonce_proxy_requests_total{job="onlyonce", instance="a", code="5xx"} 0x30`,
		},
	},
	"OnlyonceUpstreamFailing": {
		fires:  []string{`onlyonce_proxy_upstream_errors_total{job="onlyonce", upstream="http://app:3000", kind="broken"} 0+30x20`},
		silent: []string{`onlyonce_proxy_upstream_errors_total{job="onlyonce", upstream="http://app:3000", kind="broken"} 0+1x20`},
	},
	"OnlyonceOverloaded": {
		fires:  []string{`onlyonce_proxy_rejections_total{job="onlyonce", code="overloaded"} 0+30x20`, `onlyonce_proxy_rejections_total{job="onlyonce", code="upstream_busy"} 0+30x20`},
		silent: []string{`onlyonce_proxy_rejections_total{job="onlyonce", code="request_in_progress"} 0+30x20`},
	},
	"OnlyonceKeysReused": {
		fires: []string{`onlyonce_idempotency_conflicts_total{job="onlyonce", api="proxy"} 0+10x60
			onlyonce_idempotency_requests_total{job="onlyonce", api="proxy", operation="POST /x", outcome="executed"} 0+90x60
			onlyonce_idempotency_requests_total{job="onlyonce", api="proxy", operation="POST /x", outcome="mismatch"} 0+10x60`},
		silent: []string{`onlyonce_idempotency_conflicts_total{job="onlyonce", api="proxy"} 0+1x60
			onlyonce_idempotency_requests_total{job="onlyonce", api="proxy", operation="POST /x", outcome="executed"} 0+99x60
			onlyonce_idempotency_requests_total{job="onlyonce", api="proxy", operation="POST /x", outcome="mismatch"} 0+1x60`},
	},
	"OnlyonceReloadFailed": {
		fires:  []string{`onlyonce_proxy_reloads_total{job="onlyonce", instance="a", result="failed"} 0x5 1x5`},
		silent: []string{`onlyonce_proxy_reloads_total{job="onlyonce", instance="a", result="failed"} 1x30`, `onlyonce_proxy_reloads_total{job="onlyonce", instance="a", result="ok"} 0x5 1x5`},
	},
	"OnlyonceTLSBroken": {
		fires:  []string{`onlyonce_proxy_tls_handshake_errors_total{job="onlyonce", instance="a", fault="server"} 0x5 1x5`},
		silent: []string{`onlyonce_proxy_tls_handshake_errors_total{job="onlyonce", instance="a", fault="client"} 0+9x30`},
	},
	"OnlyoncePurgeFailing": {
		fires:  []string{`onlyonce_cleanup_errors_total{job="onlyonce", instance="a", store="main"} 0x9 1x9 2x9 3x9 4x20`},
		silent: []string{`onlyonce_cleanup_errors_total{job="onlyonce", instance="a", store="main"} 0x30 1x90`},
	},
	"OnlyoncePurgeLag": {
		step: time.Hour,
		fires: []string{`onlyonce_idempotency_requests_total{job="onlyonce", api="proxy", operation="POST /x", outcome="executed"} 0+100x120
			onlyonce_cleanup_records_total{job="onlyonce", instance="a", store="main"} 0x120`},
		silent: []string{
			`onlyonce_idempotency_requests_total{job="onlyonce", api="proxy", operation="POST /x", outcome="executed"} 0+100x120
			onlyonce_cleanup_records_total{job="onlyonce", instance="a", store="main"} 0x24 0+100x96
			onlyonce_cleanup_records_total{job="onlyonce", instance="b", store="main"} 0x120`,
			`onlyonce_idempotency_requests_total{job="onlyonce", api="proxy", operation="POST /x", outcome="executed"} 7x120
			onlyonce_cleanup_records_total{job="onlyonce", instance="a", store="main"} 0x120`,
		},
	},
	"OnlyonceOutboxLag": {
		fires:  []string{`onlyonce_outbox_oldest_seconds{job="onlyonce", instance="a"} 0+60x20`},
		silent: []string{`onlyonce_outbox_oldest_seconds{job="onlyonce", instance="a"} 0+60x5 0x20`},
	},
	"OnlyonceRelayStalled": {
		fires: []string{
			`onlyonce_outbox_waiting{job="onlyonce", instance="a"} 0x5 3x30
			onlyonce_outbox_messages_total{job="onlyonce", instance="a", outcome="published"} 0+1x5 5x30`,
			`onlyonce_outbox_waiting{job="onlyonce", instance="a"} 3x30`,
		},
		silent: []string{
			`onlyonce_outbox_waiting{job="onlyonce", instance="a"} 0x5 3x30
			onlyonce_outbox_messages_total{job="onlyonce", instance="a", outcome="published"} 0x40
			onlyonce_outbox_messages_total{job="onlyonce", instance="b", outcome="published"} 0+1x40`,
			`onlyonce_outbox_waiting{job="onlyonce", instance="a"} 0x30
			onlyonce_outbox_messages_total{job="onlyonce", instance="a", outcome="published"} 5x30`,
		},
	},
	"OnlyonceBrokerUnavailable": {
		fires:  []string{`onlyonce_outbox_messages_total{job="onlyonce", instance="a", outcome="unavailable"} 0+1x30`},
		silent: []string{`onlyonce_outbox_messages_total{job="onlyonce", instance="a", outcome="unavailable"} 0x5 1x30`, `onlyonce_outbox_messages_total{job="onlyonce", instance="a", outcome="failed"} 0+1x30`},
	},
	"OnlyonceMessageParked": {
		fires:  []string{`onlyonce_outbox_parked{job="onlyonce", instance="a"} 0 1x10`},
		silent: []string{`onlyonce_outbox_parked{job="onlyonce", instance="a"} 0x20`},
	},
	"OnlyonceEventPoisoned": {
		fires:  []string{`onlyonce_inbox_poisoned{job="onlyonce", instance="a"} 0 1x10`},
		silent: []string{`onlyonce_inbox_poisoned{job="onlyonce", instance="a"} 0x20`},
	},
}

// fired reports whether an alert fires while a series is evaluated at each of its steps.
func fired(t *testing.T, name string, rule rulefmt.Rule, step time.Duration, series string) bool {
	t.Helper()
	storage := promqltest.LoadedStorage(t, "load "+model.Duration(step).String()+"\n"+series)
	defer storage.Close()
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	expression, err := promQL.ParseExpr(rule.Expr)
	if err != nil {
		t.Fatal(err)
	}
	alert := rules.NewAlertingRule(name, expression, time.Duration(rule.For), time.Duration(rule.KeepFiringFor),
		labels.FromMap(rule.Labels), labels.FromMap(rule.Annotations), labels.EmptyLabels(), "", true, promslog.NewNopLogger())
	steps := 0 // of the longest series
	for line := range strings.Lines(series) {
		_, values, err := promQL.ParseSeriesDesc(strings.TrimSpace(line))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		steps = max(steps, len(values))
	}
	for i := range steps {
		at := time.Unix(0, 0).UTC().Add(time.Duration(i) * step)
		if _, err := alert.Eval(t.Context(), 0, at, rules.EngineQueryFunc(engine, storage), &url.URL{}, 0); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, active := range alert.ActiveAlerts() {
			if active.State != rules.StateFiring {
				continue
			}
			for _, text := range []string{active.Annotations.Get("summary"), active.Annotations.Get("description")} {
				if strings.Contains(text, "<no value>") || strings.Contains(text, "<error") {
					t.Errorf("%s says: %s", name, text)
				}
			}
			return true
		}
	}
	return false
}

func TestAlerts_FireWhenTheyShouldAndOnlyThen(t *testing.T) {
	all := alertRules(t)
	for name := range alertCases {
		if _, known := all[name]; !known {
			t.Errorf("%s is tested, and is no alert", name)
		}
	}
	for name, rule := range all {
		t.Run(name, func(t *testing.T) {
			test := alertCases[name]
			if test.step == 0 {
				test.step = time.Minute
			}
			if len(test.fires) == 0 || len(test.silent) == 0 {
				t.Fatal("no series say when it fires and when it does not")
			}
			for _, series := range test.fires {
				if !fired(t, name, rule, test.step, series) {
					t.Errorf("it does not fire with\n%s", series)
				}
			}
			for _, series := range test.silent {
				if fired(t, name, rule, test.step, series) {
					t.Errorf("it fires with\n%s", series)
				}
			}
		})
	}
}

func TestDashboard_ItsQueriesNameDocumentedMetrics(t *testing.T) {
	var dashboard struct {
		UID    string
		Panels []struct {
			ID      int
			Title   string
			Type    string
			Targets []struct{ Expr string }
		}
	}
	text := read(t, "deploy/grafana/onlyonce.json")
	if err := json.Unmarshal([]byte(text), &dashboard); err != nil {
		t.Fatal(err)
	}
	ids := make(map[int]bool)
	for _, panel := range dashboard.Panels {
		if ids[panel.ID] {
			t.Errorf("two panels have the id %d", panel.ID)
		}
		ids[panel.ID] = true
		if panel.Type != "row" && len(panel.Targets) == 0 {
			t.Errorf("the panel %q shows nothing", panel.Title)
		}
		for _, target := range panel.Targets {
			checkQuery(t, panel.Title, strings.ReplaceAll(target.Expr, "$__rate_interval", "5m"))
		}
	}
	for name := range documentedMetrics(t) {
		metric := strings.TrimSuffix(strings.TrimSuffix(name, "_sum"), "_count")
		shown := strings.Contains(text, metric)
		if !shown && metric != "onlyonce_idempotency_hit_rate" && metric != "onlyonce_cleanup_last_records" { // shown by rates
			t.Errorf("no panel shows %s", metric)
		}
	}
}
