package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// A documented metric is a row of docs/metrics.md, but for its unit.
type documented struct {
	kind, labels, meaning string
}

func (d documented) String() string {
	return fmt.Sprintf("%s with the labels [%s]: %s", d.kind, d.labels, d.meaning)
}

// documentedMetrics returns those that a command exports, by name.
func documentedMetrics(t *testing.T, command string) map[string]documented {
	t.Helper()
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]documented)
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(line, "|\n"), "|")
		if !strings.HasPrefix(line, "| `onlyonce_") || len(cells) != 6 {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(strings.ReplaceAll(cells[i], "`", ""))
		}
		name, unit := cells[0], cells[2]
		if strings.Contains(name, "_seconds") != (unit == "seconds") {
			t.Errorf("%s is said to be in %s", name, unit)
		}
		if slices.Contains(strings.Split(cells[4], ", "), command) {
			found[name] = documented{cells[1], cells[3], cells[5]}
		}
	}
	return found
}

// exportedMetrics returns those of a page, but for the standard ones.
func exportedMetrics(t *testing.T, page string) map[string]documented {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]documented)
	for name, family := range families {
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
			continue
		}
		kind := strings.ToLower(family.GetType().String())
		found[name] = documented{kind, strings.Join(labelsOf(family), ", "), family.GetHelp()}
	}
	return found
}

func labelsOf(family *dto.MetricFamily) []string {
	names := make(map[string]bool)
	for _, metric := range family.GetMetric() {
		for _, pair := range metric.GetLabel() {
			names[pair.GetName()] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// servedMetrics is the page of a server that has done all that is counted.
func servedMetrics(t *testing.T) string {
	s := startServe(t, t.TempDir())
	s.post("k", "Lamp")
	s.do("POST", "/orders", oneOrder, "Idempotency-Key", "k")
	var page string
	cmdtest.Until(t, "the order's event is counted", func() bool {
		page = s.get("/metrics").body
		return strings.Contains(page, `onlyonce_outbox_messages_total{outcome="published"} 1`)
	})
	return page
}

// relayedMetrics is that of a relay.
func relayedMetrics(t *testing.T) string {
	u, err := storeurl.Parse("sqlite:" + filepath.Join(t.TempDir(), "a.db"))
	if err != nil {
		t.Fatal(err)
	}
	store, err := u.OpenMigrated(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return startRelay(t, u.String()).get("/metrics").body
}

// proxiedMetrics is that of a proxy.
func proxiedMetrics(t *testing.T) string {
	up := newUpstreamServer(t)
	s := startProxy(t, up.URL, "--single-tenant", "--admin", "127.0.0.1:0", "--store", "sqlite:"+filepath.Join(t.TempDir(), "records.db"))
	s.send("k", "a")
	up.Close()
	s.send("other", "a") // an error of the upstream, to which the proxy responds itself
	return s.at(s.adminURL(t)).counts(`onlyonce_proxy_upstream_errors_total{kind="unreachable",upstream="main"} 1`)
}

func TestMetricsDoc_TheTableOfMetricsIsWhatIsExported(t *testing.T) {
	needs.Time(t)
	t.Parallel()
	for command, page := range map[string]string{"serve": servedMetrics(t), "proxy": proxiedMetrics(t), "relay": relayedMetrics(t)} {
		want, got := documentedMetrics(t, command), exportedMetrics(t, page)
		for name, d := range want {
			if got[name] != d {
				t.Errorf("%s: docs/metrics.md has %s\n%v\nexported is\n%v", command, name, d, got[name])
			}
		}
		for name := range got {
			if _, ok := want[name]; !ok {
				t.Errorf("%s exports %s, which docs/metrics.md does not say", command, name)
			}
		}
		lintMetrics(t, page)
	}
}

// lintMetrics checks names and help by Prometheus' conventions.
func lintMetrics(t *testing.T, page string) {
	t.Helper()
	problems, err := promlint.New(strings.NewReader(page)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for name := range exportedMetrics(t, page) {
		if !strings.HasPrefix(name, "onlyonce_") {
			t.Errorf("%s does not start with onlyonce_", name)
		}
	}
}
