package onlyonce_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// logged runs commands under a JSON log and returns its lines.
func logged(t *testing.T, run func(g *onlyonce.Guard)) []map[string]any {
	t.Helper()
	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	run(onlyonce.New(newStore(), onlyonce.Config{Observer: onlyonce.SlogObserver(log)}))
	var lines []map[string]any
	for line := range strings.Lines(out.String()) {
		var l map[string]any
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		lines = append(lines, l)
	}
	return lines
}

func TestDecisionsAreLogged(t *testing.T) {
	var c charger
	lines := logged(t, func(g *onlyonce.Guard) {
		for range 2 {
			if _, err := onlyonce.Do(t.Context(), g, request("k"), c.charge); err != nil {
				t.Fatal(err)
			}
		}
		other := request("k")
		other.Fingerprint = []byte{0xab}
		_, _ = onlyonce.Do(t.Context(), g, other, c.charge)
		if _, err := g.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	want := []string{"idempotency_executed", "idempotency_hit", "idempotency_conflict", "idempotency_purged"}
	for i, l := range lines {
		if l["event"] != want[i] {
			t.Fatalf("line %d is %v, want %s", i, l, want[i])
		}
	}
	hash := request("k").ID.Hash()
	hit, conflict := lines[1], lines[2]
	if hit["idempotency_key"] != hex.EncodeToString(hash[:8]) || hit["response_size"] != float64(len(`{"Charge":"ch_1","Cents":1990}`)) || hit["cached_at"] == "" {
		t.Errorf("hit %v", hit)
	}
	if conflict["new_hash"] != "ab" || conflict["existing_hash"] != hex.EncodeToString(request("k").Fingerprint) || conflict["level"] != "WARN" {
		t.Errorf("conflict %v", conflict)
	}
}

func TestAReleaseIsLoggedAsOneWhateverTheReason(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, nil))
	l := newLedger()
	g := onlyonce.New(l, onlyonce.Config{Observer: onlyonce.SlogObserver(log)})
	a, err := g.Begin(t.Context(), request("k"))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Settle(t.Context(), onlyonce.Settlement{}); err != nil {
		t.Fatal(err)
	}
	_, _ = onlyonce.BeginTx(t.Context(), g, l, request("k"), func(context.Context, entry) (onlyonce.Settlement, error) {
		return onlyonce.Settlement{}, errors.New("the handler answered 400")
	})
	lines := slices.Collect(strings.Lines(out.String()))
	if len(lines) != 2 || !strings.Contains(lines[1], `"error":"the handler answered 400"`) {
		t.Fatalf("the log is\n%s", out.String())
	}
	for _, line := range lines {
		if !strings.Contains(line, `"level":"INFO","msg":"idempotency released","event":"idempotency_released"`) {
			t.Error(line)
		}
	}
}

func TestSecurity17NothingACallerSendsCanForgeALogLine(t *testing.T) {
	nasty := "k\r\n{\"event\":\"idempotency_hit\"}\x1b[2J\u2028\x00<script>"
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))
	g := onlyonce.New(newStore(), onlyonce.Config{Observer: onlyonce.SlogObserver(log)})
	req := onlyonce.Request{ID: onlyonce.ID{Tenant: "secret tenant " + nasty, Operation: nasty, Key: "secret key " + nasty}}
	_, _ = onlyonce.Do(t.Context(), g, req, func(context.Context) (int, error) { return 0, errors.New(nasty) })
	_, _ = onlyonce.Do(t.Context(), g, req, func(context.Context) (string, error) { return "secret body", nil })
	_, _ = onlyonce.Do(t.Context(), g, req, func(context.Context) (string, error) { return "", nil })
	lines := strings.Split(strings.TrimRight(text.String(), "\n"), "\n")
	if len(lines) != 3 {
		t.Errorf("%d lines for 3 events:\n%s", len(lines), text.String())
	}
	if strings.Contains(text.String(), "secret") || strings.ContainsAny(text.String(), "\x1b\x00\r") {
		t.Errorf("the log shows what it should not:\n%q", text.String())
	}
}

func TestPurgeDeletesWhatHasExpiredAndTellsHowMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log eventLog
		store := newStore()
		g := onlyonce.New(store, onlyonce.Config{Keep: time.Hour, Observer: log.observe})
		for i := range 1201 {
			if _, err := onlyonce.Do(t.Context(), g, request(string(rune('a'+i))), func(context.Context) (int, error) { return 1, nil }); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); g.PurgeEvery(ctx, 10*time.Minute) }()
		time.Sleep(time.Hour + 11*time.Minute)
		cancel()
		<-done
		purged := 0
		for _, e := range log.events {
			purged += e.Purged
		}
		if purged != 1201 || log.count("purged") != 8 {
			t.Errorf("deleted %d in %d purges", purged, log.count("purged"))
		}
	})
}

func TestPurgeNeedsAStoreThatCan(t *testing.T) {
	g := onlyonce.New(struct{ onlyonce.Store }{newStore()}, onlyonce.Config{})
	if _, err := g.Purge(t.Context()); err == nil {
		t.Fatal("no error")
	}
}
