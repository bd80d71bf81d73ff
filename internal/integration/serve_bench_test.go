package integration

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"testing"
	"time"
)

var serveFlag = flag.Duration("serve", 7*time.Minute, "how long BenchmarkServe creates items")

// BenchmarkServe creates 3,000 items per second from 64 callers by onlyonce serve on SQLite, which
// keeps their keys for 30 seconds and deletes expired ones every ten. It reports the 99th percentile
// of the latencies in the first and in the last seventh of the time.
func BenchmarkServe(b *testing.B) {
	bin := buildServer(b)
	for b.Loop() {
		p := startProcess(b, bin, b.TempDir(), "--items-keep", "30s", "--purge-every", "10s", "--log-level", "error")
		const callers = 64
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callers}}
		create := func(ctx context.Context) error { return createItem(ctx, client, p.url) }
		all := paced{perSecond: 3000, callers: callers, lasts: *serveFlag}.run(b, create)
		first, last := all, all
		for i, s := range all {
			if s.due < *serveFlag/7 {
				first = all[:i+1]
			}
			if s.due < *serveFlag*6/7 {
				last = all[i+1:]
			}
		}
		b.ReportMetric(percentile(50, first), "first-p50-ms")
		b.ReportMetric(percentile(99, first), "first-p99-ms")
		b.ReportMetric(percentile(50, last), "last-p50-ms")
		b.ReportMetric(percentile(99, last), "last-p99-ms")
		client.CloseIdleConnections()
		p.kill()
	}
}

// createItem creates an item under a new key.
func createItem(ctx context.Context, client *http.Client, url string) error {
	key := strconv.FormatInt(keys.Add(1), 10)
	body := fmt.Sprintf(`{"sku":"LAMP-%s","title":"Lamp","status":"active","brand":"Lumen"}`, key)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/api/v1/items", bytes.NewReader([]byte(body)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if answer, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusCreated {
		return fmt.Errorf("%s: %s, error %w", res.Status, answer, err)
	}
	return nil
}
