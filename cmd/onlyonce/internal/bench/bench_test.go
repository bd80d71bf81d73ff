package bench

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/migrate"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/records"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// runBench runs bench with JSON output, until it has sent its requests.
func runBench(t *testing.T, ctx context.Context, args ...string) (report, string, error) {
	t.Helper()
	var out, log strings.Builder
	cmd := Command()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetOut(&out)
	cmd.SetErr(&log)
	cmd.SetArgs(append([]string{"--format", "json", "--duration", "1h"}, args...))
	err := cmd.ExecuteContext(ctx)
	var report report
	read := json.NewDecoder(strings.NewReader(out.String()))
	read.DisallowUnknownFields()
	if bad := read.Decode(&report); bad != nil && out.Len() > 0 {
		t.Fatalf("%v in %s", bad, &out)
	}
	return report, log.String(), err
}

// wantWhole fails unless a target was measured as it should be.
func wantWhole(t *testing.T, m measured, requests int64) {
	t.Helper()
	sum := int64(0)
	for _, o := range m.Outcomes {
		sum += o.Count
	}
	if m.Requests != requests || sum != requests || m.Outcomes["executed"].Count == 0 || m.Outcomes["replayed"].Count == 0 ||
		m.Outcomes["error"].Count+m.Outcomes["failed"].Count+m.Outcomes["mismatch"].Count != 0 || m.Violated != 0 {
		t.Errorf("of %d requests: %+v", requests, m)
	}
	if all := m.Latency["all"]; all.P50 == 0 || all.P50 > all.P90 || all.P90 > all.P99 || all.P99 > all.P999 || all.P999 > all.Max || m.PerSecond <= 0 || m.Seconds <= 0 {
		t.Errorf("%+v in %v s", m.Latency, m.Seconds)
	}
}

func TestBench_ABenchComparesAStoreInMemoryWithAFile(t *testing.T) {
	file := "sqlite:" + filepath.Join(t.TempDir(), "bench.db")
	report, log, err := runBench(t, t.Context(), "memory://", "--compare", file, "--requests", "400", "--callers", "8", "--keys", "zipf", "--keep", "1s")
	if err != nil || len(report.Targets) != 2 || report.Ratio == nil || report.Ratio.PerSecond <= 0 || report.Ratio.Lowest > report.Ratio.Median || report.Ratio.Median > report.Ratio.Highest {
		t.Fatalf("%v: %+v", err, report)
	}
	for _, m := range report.Targets {
		wantWhole(t, m, 400)
	}
	if report.Targets[0].Target != "memory://" || !strings.HasPrefix(report.Targets[1].Target, "sqlite:/") {
		t.Errorf("%+v", report.Targets)
	}
	// As many as there were keys: one whose record expired before its repeat ran twice, and has one record.
	_, said, _ := strings.Cut(log, "purged ")
	var purged int64
	_, _ = fmt.Sscan(said, &purged)
	if most := report.Targets[1].Outcomes["executed"].Count; purged > most || purged < 400*4/5 {
		t.Errorf("of %d: %s", most, log)
	}
}

func TestBench_ABenchOnAServerLeavesNothingBehind(t *testing.T) {
	for engine, newURL := range map[string]func(*testing.T) string{"postgres": cmdtest.NewPostgresURL, "pgx": cmdtest.NewPostgresURL, "mysql": cmdtest.NewMySQLURL} {
		t.Run(engine, func(t *testing.T) {
			at := newURL(t)
			under := at
			if engine == "pgx" {
				under = "pgx" + strings.TrimPrefix(at, "postgres")
			}
			if _, _, err := runBench(t, t.Context(), under, "--requests", "1"); err == nil || !strings.Contains(err.Error(), "migrate") {
				t.Fatalf("of a database without tables: %v", err)
			}
			tables := migrate.Command()
			tables.SetOut(io.Discard)
			tables.SetArgs([]string{at})
			if err := tables.ExecuteContext(t.Context()); err != nil {
				t.Fatal(err)
			}
			report, _, err := runBench(t, t.Context(), under, "--requests", "300", "--keep", "1s")
			if err != nil {
				t.Fatal(err)
			}
			wantWhole(t, report.Targets[0], 300)
			if shown := report.Targets[0].Target; !strings.HasPrefix(shown, engine+"://") {
				t.Errorf("it is called %s", shown)
			}
			var out strings.Builder
			list := records.Command()
			list.SetOut(&out)
			list.SetArgs([]string{"ls", at, "--json"})
			if err := list.ExecuteContext(t.Context()); err != nil || out.Len() > 0 {
				t.Errorf("%v: it left\n%s", err, &out)
			}
		})
	}
}

// A forgetful store gives every claim.
type forgetful struct {
	onlyonce.Store
	mu sync.Mutex
	by map[string]onlyonce.Store // owner
}

func (f *forgetful) Claim(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.by[c.Owner] = memstore.New(memstore.Config{})
	return f.by[c.Owner].Claim(ctx, c)
}

func (f *forgetful) Settle(ctx context.Context, h onlyonce.Hold, s onlyonce.Settlement) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.by[h.Owner].Settle(ctx, h, s)
}

// A mistaken store gives other responses than those it was given.
type mistaken struct{ onlyonce.Store }

func (m mistaken) Claim(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
	r, err := m.Store.Claim(ctx, c)
	if r.State == onlyonce.StateCompleted {
		r.Result.Body = []byte(`"something else"`)
	}
	return r, err
}

func TestBench_AStoreThatBreaksItsPromiseIsFoundOut(t *testing.T) {
	memory := memstore.New(memstore.Config{})
	for says, store := range map[string]onlyonce.Store{
		" ran again, ": &forgetful{Store: memory, by: map[string]onlyonce.Store{}},
		" got a different response than the first time": mistaken{memory},
	} {
		c := &config{callers: 1, duration: longest, requests: 10, duplicates: 0.5, keys: keysUniform, keep: longest, resultSize: 16}
		target := &storeTarget{shown: "broken://", store: store, guard: onlyonce.New(store, onlyonce.Config{Keep: c.keep}), tenant: "bench", keep: c.keep}
		run := newTargetRun(c, target)
		takeTurns(t.Context(), c, []*targetRun{run})
		err := newReport(c, []*targetRun{run}, false).err()
		if err == nil || !strings.Contains(err.Error(), "broken:// broke the guarantee 5 times: bench-") || !strings.Contains(err.Error(), says) {
			t.Errorf("of the one that%s…: %v", says, err)
		}
	}
}

// protected is an API behind httponce.
func protected(runs *atomic.Int64) http.Handler {
	guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{})
	return httponce.Wrap(guard, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "order %d", runs.Add(1))
	}), httponce.Config{Tenant: httponce.SingleTenant, Required: true})
}

func TestBench_ABenchOfAnHTTPAPISaysWhatBecameOfItsRequests(t *testing.T) {
	var runs, n atomic.Int64
	orders := protected(&runs)
	for name, c := range map[string]struct {
		api     http.HandlerFunc
		outcome string
		says    string // the error; empty: none
	}{
		"a layer of ours":       {orders.ServeHTTP, "replayed", ""},
		"one that marks not":    {func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Header.Get("Idempotency-Key")) }, "replayed", ""},
		"none":                  {func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, n.Add(1)) }, "replayed", "got a different response than the first time"},
		"one that forgets some": {forgetsSome, "replayed", "got two responses, and neither is marked as a replay"},
		"one that is busy": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "busy", http.StatusConflict)
		}, "in_flight", "succeeded: "},
		"one that repeats a conflict": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "1")
			w.Header().Set("Idempotency-Replayed", "true")
			http.Error(w, "sold out", http.StatusConflict)
		}, "mismatch", "sold out"},
		"one that is at it": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusConflict)
			fmt.Fprint(w, `{"code":"request_in_progress"}`)
		}, "in_flight", "succeeded: "},
		"one that rejects": {func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, "key reused", http.StatusUnprocessableEntity)
		}, "mismatch", `422 Unprocessable Entity: "key reused\n"`},
		"one that conflicts": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusConflict)
			fmt.Fprint(w, `{"code":"outcome_unknown"}`)
		}, "mismatch", "409 Conflict"},
		"one that fails":     {func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no", http.StatusBadGateway) }, "failed", "502 Bad Gateway"},
		"one that redirects": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusSeeOther) }, "replayed", ""},
		"one that goes away": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "error", "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(c.api)
			defer server.Close()
			report, _, err := runBench(t, t.Context(), server.URL, "--yes-it-may-write", "--requests", "100", "--callers", "1", "--duplicates", "0.5", "--keep", "1h", "--timeout", "1m")
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Fatalf("%v", err)
			}
			if m := report.Targets[0]; m.Requests != 100 || m.Outcomes[c.outcome].Count < 50 {
				t.Errorf("%+v", m)
			}
		})
	}
	if runs.Load() != 50 {
		t.Errorf("behind our layer it ran %d times", runs.Load())
	}
}

func TestBench_ABenchReadsALimitedPartOfAResponse(t *testing.T) {
	piece := []byte(strings.Repeat("x", 1<<20))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for n := 0; r.URL.Path != "/ends" || n < maxResponse>>20; n++ {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	}))
	defer server.Close()
	const requests = 4
	args := []string{server.URL, "--yes-it-may-write", "--requests", fmt.Sprint(requests), "--callers", "1", "--timeout", "1m"}
	if _, _, err := runBench(t, t.Context(), append(args, "--path", "/ends")...); err != nil {
		t.Errorf("of the longest answers: %v", err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	report, _, err := runBench(t, t.Context(), args...)
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "a response is longer than 16 MiB") {
		t.Errorf("responses without end: %v", err)
	}
	if n := report.Targets[0].Outcomes["error"].Count; n != requests {
		t.Errorf("%d responses without end are errors, want %d", n, requests)
	}
	if taken := after.TotalAlloc - before.TotalAlloc; taken > requests*maxResponse/2 {
		t.Errorf("%d MiB were taken for %d answers", taken>>20, requests)
	}
}

// forgetsSome marks its replays, but runs some commands again; its responses do
// not tell.
var forgetsSome = func() http.HandlerFunc {
	var mu sync.Mutex
	seen := map[string]int{}
	return func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		key := r.Header.Get("Idempotency-Key")
		if seen[key]++; seen[key] > 1 && !strings.HasSuffix(key, "0") {
			w.Header().Set("Idempotency-Replayed", "true")
		}
		fmt.Fprint(w, "made")
	}
}()

func TestBench_TheRequestsOfABenchAreThoseOfItsFlags(t *testing.T) {
	var got atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		key := r.Header.Get("X-Key")
		got.Store(strings.ReplaceAll(fmt.Sprint(r.Method, " ", r.URL, " ", r.Host, " ", r.Header["Content-Type"], " ", r.Header["X-Trace"], " ", r.Header["Idempotency-Key"], " ", string(body)), key, "KEY"))
	}))
	defer server.Close()
	_, log, err := runBench(t, t.Context(), strings.Replace(server.URL, "http://", "http://me:secret@", 1)+"/v1/", "--yes-it-may-write", "--requests", "1",
		"--method", "PATCH", "--path", "/orders?x=1", "--header", "content-type: text/plain", "--header", "X-Trace: {key}", "--header", "X-Trace:b",
		"--header", "Host: shop.example", "--header", "X-Key: theirs", "--key-header", "x-key", "--body", "order {key} {key}")
	if want := "PATCH /v1/orders?x=1 shop.example [text/plain] [KEY b] [] order KEY KEY"; err != nil || got.Load() != want {
		t.Errorf("%v: it got\n%v, want\n%s", err, got.Load(), want)
	}
	if strings.Contains(log, "secret") || !strings.Contains(log, "is left there") {
		t.Errorf("it said %s", log)
	}
}

func TestBench_ABenchTrustsTheCertificatesOfAFileAndNoOthers(t *testing.T) {
	var runs atomic.Int64
	s := httptest.NewTLSServer(protected(&runs))
	defer s.Close()
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	file := filepath.Join(t.TempDir(), "ca.pem")
	cmdtest.WriteFile(t, file, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	args := []string{s.URL, "--yes-it-may-write", "--requests", "3"}
	if _, _, err := runBench(t, t.Context(), append(args, "--cacert", file)...); err != nil || runs.Load() == 0 {
		t.Errorf("%v after %d runs", err, runs.Load())
	}
	if _, _, err := runBench(t, t.Context(), args...); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("without the file: %v", err)
	}
}

func TestBench_ABenchThatIsEndedPrintsWhatItMeasured(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) == 10 {
			cancel()
		}
		fmt.Fprint(w, r.Header.Get("Idempotency-Key"))
	}))
	defer server.Close()
	report, _, err := runBench(t, ctx, server.URL, "--yes-it-may-write", "--duration", "1h", "--callers", "2")
	if err != nil || !report.Interrupted || report.Targets[0].Requests < 10 || report.Targets[0].Outcomes["error"].Count > 0 {
		t.Errorf("%v: %+v", err, report)
	}
}
