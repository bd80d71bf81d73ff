package proxycmd

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/metrics"
)

func TestTrafficMetrics_AClientDoesNotFillTheLogNorHideOtherFailures(t *testing.T) {
	synctest.Test(t, reportMany)
}

func reportMany(t *testing.T) {
	var out bytes.Buffer
	m := newTrafficMetrics(metrics.New(), slog.New(slog.NewTextHandler(&out, nil)))
	r := httptest.NewRequest("POST", "/", nil)
	for i := range 1000 {
		m.report(r, fmt.Errorf("proxy: readfrom tcp 127.0.0.1:%d: the request's body was truncated", i))
	}
	m.report(r, errors.New("proxy: the upstream is away"))
	if n := strings.Count(out.String(), "\n"); n != 11 || !strings.Contains(out.String(), "the upstream is away") {
		t.Errorf("%d lines:\n%s", n, out.String())
	}
}
