package main

import (
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
)

func TestPurge_PurgingDeletesTheExpiredRecordsOfAllThreeAPIs(t *testing.T) {
	t.Parallel()
	s := startServe(t, t.TempDir(), "--purge-every", "10ms",
		"--items-keep", "10ms", "--sandboxes-keep", "10ms", "--orders-keep", "10ms")
	s.post("k", "Lamp")
	s.do("POST", "/v1/sandboxes", `{}`, "Idempotency-Key", "k")
	s.do("POST", "/orders", oneOrder, "Idempotency-Key", "k")
	cmdtest.Until(t, "the records of the three are deleted", func() bool {
		return strings.Contains(s.get("/metrics").body, "\nonlyonce_cleanup_records_total{store=\"main\"} 3\n")
	})
}
