package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/proxyfile"
)

func TestProxyGuide_TheSettingsThatNeedARestartAreListed(t *testing.T) {
	text, err := os.ReadFile("../../docs/proxy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "Some settings need a restart: ")
	list, _, _ = strings.Cut(list, " (")
	var listed []string
	for i, part := range strings.Split(list, "`") {
		if i%2 == 1 {
			listed = append(listed, part)
		}
	}
	if want := proxyfile.RestartSettings(); !slices.Equal(listed, want) {
		t.Errorf("the guide lists %q, want %q", listed, want)
	}
}

func TestProxyGuide_TheLimitsHaveTheirDefaults(t *testing.T) {
	text, err := os.ReadFile("../../docs/proxy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n## Limits\n")
	table, _, _ = strings.Cut(table, "\n### ")
	file, upstream := proxyfile.New(), proxyfile.NewUpstream()
	limits := file.Defaults.Limits
	for setting, want := range map[string]any{
		"limits.body":                 limits.Body,
		"limits.response":             limits.Response,
		"limits.tenant_memory":        limits.TenantMemory,
		"limits.tenant_stored":        limits.TenantStored,
		"limits.in_flight":            limits.InFlight,
		"limits.new_keys":             limits.NewKeys,
		"server.memory":               file.Server.Memory,
		"store.limit":                 file.Store.Limit,
		"tenant.new_per_address":      file.Tenant.NewPerAddress,
		"upstreams[].max_connections": upstream.MaxConns,
	} {
		_, row, found := strings.Cut(table, "| `"+setting+"`")
		_, row, _ = strings.Cut(row, "| ")
		row, _, _ = strings.Cut(row, " |")
		if row, _, _ = strings.Cut(row, ";"); !found || row != fmt.Sprint(want) {
			t.Errorf("the guide has the default %q of %s, want %v", row, setting, want)
		}
	}
}

func TestProxyGuide_TheFilesOfTheGuideAreRight(t *testing.T) {
	text, err := os.ReadFile("../../docs/proxy.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(text), "```yaml\n")[1:]
	if len(blocks) != 2 {
		t.Fatalf("%d files", len(blocks))
	}
	for _, block := range blocks {
		file, _, _ := strings.Cut(block, "```")
		if _, err := proxyfile.Parse("docs/proxy.md", []byte(file)); err != nil {
			t.Error(err)
		}
	}
	file, _, _ := strings.Cut(blocks[0], "```")
	file = strings.Replace(file, "wait: 10s", "wait: 10", 1)
	_, decoding := proxyfile.Parse("proxy.yaml", []byte(file))
	file = strings.Replace(strings.Replace(file, "wait: 10", "wait: 10s", 1), "unknown: hold", "unknown: keep", 1)
	_, checking := proxyfile.Parse("proxy.yaml", []byte(file))
	for _, err := range []error{decoding, checking} {
		if err == nil || !strings.Contains(string(text), "\n"+err.Error()+"\n") {
			t.Errorf("the guide does not show this: %v", err)
		}
	}
}
