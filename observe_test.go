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
	run(onlyonce.New(newStore(), onlyonce.Config{Observer: onlyonce.SlogObserver(log, nil)}))
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

func TestObserver_DecisionsAreLogged(t *testing.T) {
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

func TestObserver_AReleaseIsLoggedAsOneWhateverTheReason(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, nil))
	l := newLedger()
	g := onlyonce.NewTx(l, onlyonce.Config{Observer: onlyonce.SlogObserver(log, nil)})
	a, err := g.Begin(t.Context(), request("k"))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Settle(t.Context(), onlyonce.Settlement{}); err != nil {
		t.Fatal(err)
	}
	_, _ = g.BeginTx(t.Context(), request("k"), func(context.Context, entry) (onlyonce.Settlement, error) {
		return onlyonce.Settlement{}, errors.New("the handler responded with 400")
	})
	lines := slices.Collect(strings.Lines(out.String()))
	if len(lines) != 2 || !strings.Contains(lines[1], `"error":"the handler responded with 400"`) {
		t.Fatalf("the log is\n%s", out.String())
	}
	for _, line := range lines {
		if !strings.Contains(line, `"level":"INFO","msg":"idempotency released","event":"idempotency_released"`) {
			t.Error(line)
		}
	}
}

func TestSecurity_NothingACallerSendsCanForgeALogLine(t *testing.T) {
	nasty := "k\r\n{\"event\":\"idempotency_hit\"}\x1b[2J\u2028\x00<script>"
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))
	g := onlyonce.New(newStore(), onlyonce.Config{Observer: onlyonce.SlogObserver(log, nil)})
	req := onlyonce.Request{ID: onlyonce.ID{Tenant: "secret tenant " + nasty, Operation: nasty, Key: "secret key " + nasty}, Fingerprint: []byte("secret fingerprint")}
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

func TestObserver_EveryLineCarriesTheRefOfARecordThatHasOne(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	l := newLedger()
	g := onlyonce.NewTx(l, onlyonce.Config{Observer: onlyonce.SlogObserver(log, nil)})
	ends := []error{nil, errors.New("declined")}
	for i, end := range ends {
		one := func(ctx context.Context) (int, error) { onlyonce.Current(ctx).SetRef("ord_17"); return 1, end }
		for range 2 {
			_, _ = onlyonce.Do(t.Context(), g.Guard, request(string(rune('a'+i))), one)
			_, _ = onlyonce.DoTx(t.Context(), g, request(string(rune('c'+i))), func(ctx context.Context, _ entry) (int, error) { return one(ctx) })
		}
	}
	_, _ = onlyonce.Do(t.Context(), g.Guard, request("none"), func(context.Context) (int, error) { return 1, nil })
	lines := slices.Collect(strings.Lines(out.String()))
	for i, line := range lines {
		if strings.Contains(line, `"ref":"ord_17"`) == (i == len(lines)-1) {
			t.Errorf("line %d: %s", i, line)
		}
	}
	if len(lines) != 9 {
		t.Errorf("%d lines", len(lines))
	}
}

func TestObserver_TheKeyIsShownAsConfigured(t *testing.T) {
	hash := request("k-17").ID.Hash()
	for want, show := range map[string]func(onlyonce.ID) string{
		hex.EncodeToString(hash[:8]): nil,
		"k-17":                       func(id onlyonce.ID) string { return id.Key },
		"k-…":                        func(id onlyonce.ID) string { return id.Key[:2] + "…" },
	} {
		var out bytes.Buffer
		log := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
		g := onlyonce.New(newStore(), onlyonce.Config{Observer: onlyonce.SlogObserver(log, show)})
		_, _ = onlyonce.Do(t.Context(), g, request("k-17"), func(context.Context) (int, error) { return 1, nil })
		if !strings.Contains(out.String(), `"idempotency_key":"`+want+`"`) {
			t.Errorf("want %q in %s", want, out.String())
		}
	}
}

func TestObserver_AnObserverThatPanicsChangesNothing(t *testing.T) {
	processors(t, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			defer slog.SetDefault(slog.Default())
			slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
			told := 0
			l := newLedger()
			g := onlyonce.NewTx(l, onlyonce.Config{Lease: 30 * time.Second, Observer: func(context.Context, onlyonce.Event) { told++; panic("a bug in the observer") }})
			crash(t, l, request("taken over"), time.Second)
			time.Sleep(2 * time.Second)
			one := func(context.Context) (int, error) { return 1, nil }
			for _, key := range []string{"k", "k", "taken over"} {
				if a, err := onlyonce.Do(t.Context(), g.Guard, request(key), one); err != nil || a.Value != 1 {
					t.Errorf("%s: answer %+v, error %v", key, a, err)
				}
			}
			for range 2 {
				if a, err := onlyonce.DoTx(t.Context(), g, request("tx"), func(ctx context.Context, _ entry) (int, error) { return one(ctx) }); err != nil || a.Value != 1 {
					t.Errorf("in a transaction: answer %+v, error %v", a, err)
				}
			}
			if _, err := g.Purge(t.Context()); err != nil {
				t.Error(err)
			}
			renewals := 0
			l.set(func() { l.renew = func(do func() error) error { renewals++; return do() } })
			time.Sleep(time.Hour)
			for _, key := range []string{"k", "taken over", "tx"} {
				if rec := lookup(t, l, request(key)); rec.State != onlyonce.StateCompleted {
					t.Errorf("%s: record %+v", key, rec)
				}
			}
			if lines := strings.Count(out.String(), "onlyonce: the observer panicked"); lines != told || told != 7 || renewals != 0 {
				t.Errorf("told %d times, logged %d lines, then renewed %d times", told, lines, renewals)
			}
			if !strings.Contains(out.String(), "a bug in the observer") || !strings.Contains(out.String(), "observe_test.go") {
				t.Errorf("the log lacks panic or stack:\n%s", out.String())
			}
		})
	})
}

func TestObserver_AnObserverThatBlocksKeepsNoLeaseAliveAndNobodyElseWaiting(t *testing.T) {
	for _, at := range []onlyonce.Outcome{onlyonce.OutcomeTakenOver, onlyonce.OutcomeExecuted} {
		synctest.Test(t, func(t *testing.T) {
			store := newStore()
			crash(t, store, request("k"), time.Second)
			time.Sleep(2 * time.Second)
			var blocked bool
			release := make(chan struct{})
			g := onlyonce.New(store, onlyonce.Config{Lease: 30 * time.Second, Wait: time.Hour, Observer: func(_ context.Context, e onlyonce.Event) {
				if e.Outcome == at && !blocked {
					blocked = true
					<-release
				}
			}})
			first := make(chan error)
			go func() {
				ran := false
				_, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (int, error) { ran = true; return 1, nil })
				if ran == (at == onlyonce.OutcomeTakenOver) {
					t.Errorf("%s: ran %v", at, ran)
				}
				first <- err
			}()
			synctest.Wait()
			a, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (int, error) { return 2, nil })
			want := 1
			if at == onlyonce.OutcomeTakenOver { // its lease lapsed meanwhile
				want = 2
			}
			if err != nil || a.Value != want {
				t.Errorf("%s: answer %+v, error %v", at, a, err)
			}
			close(release)
			if err := <-first; (err == nil) != (want == 1) || err != nil && !errors.Is(err, onlyonce.ErrLost) {
				t.Errorf("%s: the first got error %v", at, err)
			}
		})
	}
}

// Nothing ran, so nobody has to wait for the rest of the lease.
func TestObserver_AnAttemptThatDoesNotRunBecauseOfTheObserverIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		crash(t, store, request("k"), time.Second)
		time.Sleep(2 * time.Second)
		const lease = 30 * time.Second
		g := onlyonce.New(store, onlyonce.Config{Lease: lease, Observer: func(_ context.Context, e onlyonce.Event) {
			if e.Outcome == onlyonce.OutcomeTakenOver && e.Record.Attempt == 2 {
				time.Sleep(lease * 4 / 5)
			}
		}})
		_, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (int, error) { t.Error("ran"); return 1, nil })
		if rec := lookup(t, store, request("k")); !errors.Is(err, onlyonce.ErrLost) || rec.State != onlyonce.StateUnknown || g.InFlight() != 0 {
			t.Errorf("error %v, record %+v, %d in flight", err, rec, g.InFlight())
		}
		if a, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (int, error) { return 3, nil }); err != nil || a.Attempt != 3 {
			t.Errorf("a repeat got %+v, error %v", a, err)
		}
	})
}

func TestObserver_PurgeDeletesWhatHasExpiredAndReportsHowMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log eventLog
		store := newStore()
		g := onlyonce.New(store, onlyonce.Config{Keep: time.Hour, Observer: log.observe})
		for i := range 1201 {
			if _, err := onlyonce.Do(t.Context(), g, request(string(rune('a'+i))), func(context.Context) (int, error) { return 1, nil }); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Hour)
		n, err := g.Purge(t.Context())
		if last := log.events[len(log.events)-1]; n != 1201 || err != nil || last.Purged != n || log.count("purged") != 1 {
			t.Errorf("deleted %d, error %v, event %+v", n, err, last)
		}
	})
}

func TestObserver_PurgeNeedsAStoreThatCan(t *testing.T) {
	g := onlyonce.New(struct{ onlyonce.Store }{newStore()}, onlyonce.Config{})
	if _, err := g.Purge(t.Context()); err == nil {
		t.Fatal("no error")
	}
}

func TestTee_EveryObserverIsCalledInOrder(t *testing.T) {
	var calls []string
	note := func(name string) onlyonce.Observer {
		return func(_ context.Context, e onlyonce.Event) { calls = append(calls, name+" "+string(e.Outcome)) }
	}
	onlyonce.Tee(note("a"), note("b"))(t.Context(), onlyonce.Event{Outcome: onlyonce.OutcomeReplayed})
	if len(calls) != 2 || calls[0] != "a replayed" || calls[1] != "b replayed" {
		t.Errorf("calls %q", calls)
	}
}
