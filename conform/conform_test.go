package conform_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/conform"
)

func TestConform_AServiceThatKnowsNoKeysFailsTheRowsAboutRepeats(t *testing.T) {
	t.Parallel()
	target := serve(t, newShop().slowly())
	failed := []string{"replay", "mismatch", "burst", "in-flight", "disconnect"}
	report := run(t, target, quick)
	wantRows(t, report, failed, nil)
	wantDetail(t, report, "replay", "The repeat took effect again.")
	target.CountURL, target.Count = "", ""
	report = run(t, target, quick)
	wantRows(t, report, failed, nil)
	wantDetail(t, report, "replay", "The repeat's response differed in Location, the body: the repeat probably ran again.")
	wantDetail(t, report, "burst", "Two of the requests got the responses of two runs.")
	wantDetail(t, report, "in-flight", "The repeat of a running request got the response of a second run.")
}

func TestConform_WithoutABodyNothingIsCutOffOrBad(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	target := serve(t, newLayer("", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, n.Add(1))
	})))
	target.Body, target.Fresh, target.CountURL, target.Count = nil, "", "", ""
	cfg := conform.Config{Only: []string{"replay", "disconnect", "cut-off", "error"}}
	report := run(t, target, cfg)
	wantRows(t, report, []string{}, []string{"cut-off", "error"})
	if caveat := report.Rows[1].Caveat; !strings.Contains(caveat, "--count-url") {
		t.Errorf("it is not said that a second run can't be seen: %q", caveat)
	}
	target.BadBody = []byte("bad, but it is taken")
	wantRows(t, run(t, target, cfg), []string{}, []string{"cut-off", "error"})
}

func TestConform_ProgressIsToldBeforeEachRow(t *testing.T) {
	t.Parallel()
	var told []string
	cfg := conform.Config{Only: []string{"replay", "marker", "case"}, Progress: func(row conform.Row, n, of int) {
		told = append(told, fmt.Sprintf("%d of %d: %s %s", n, of, row.ID, row.Verdict))
	}}
	report := run(t, serve(t, newLayer("", newShop())), cfg)
	if want := []string{"1 of 3: replay ", "2 of 3: case ", "3 of 3: marker "}; len(report.Rows) != 3 || !slices.Equal(told, want) {
		t.Errorf("%q", told)
	}
}

func TestConform_AFailureMayBeTriedAgain(t *testing.T) {
	t.Parallel()
	var bad atomic.Int64
	next := newLayer("", newShop())
	target := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == int64(len("bad")) && bad.Add(1) == 1 {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		next.ServeHTTP(w, r)
	}))
	target.BadBody = []byte("bad")
	wantRows(t, run(t, target, conform.Config{Only: []string{"error"}}), []string{}, []string{})
	if bad.Load() != 2 {
		t.Errorf("the bad body came %d times", bad.Load())
	}
}

func TestConform_OnlyTheSelectedRowsAreChecked(t *testing.T) {
	t.Parallel()
	target := serve(t, newLayer("", newShop()))
	for _, c := range []struct {
		cfg  conform.Config
		want string
	}{
		{conform.Config{Only: []string{"case", "link"}}, "case link"},
		{conform.Config{Only: []string{"case", "link"}, Skip: []string{"link"}}, "case"},
	} {
		report, err := conform.Run(t.Context(), target, c.cfg)
		if got := strings.Join(with(report, conform.Pass), " "); err != nil || got != c.want {
			t.Errorf("%q, %v, want %q", got, err, c.want)
		}
	}
	for _, row := range conform.Rows() { // each stands alone
		wantRows(t, run(t, target, conform.Config{Only: []string{row.ID}}), []string{}, nil)
	}
}

func TestConform_WhereASecondRunCantBeSeenNothingIsSaidOfIt(t *testing.T) {
	t.Parallel()
	mute := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	target := serve(t, mute)
	target.CountURL, target.Count = "", ""
	report := run(t, target, quick)
	wantRows(t, report, []string{"mismatch"}, nil) // that it was taken can be seen
	for _, row := range report.Rows {
		if row.ID == "replay" && !strings.Contains(row.Detail, "--count-url") {
			t.Errorf("%+v", row)
		}
	}
}

func TestConform_CountedEffectsShowWhatResponsesHide(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	mute := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/sold" {
			fmt.Fprintf(w, `{"sold":[{"n":%d}]}`, n.Load())
			return
		}
		n.Add(2) // an order has two rows
		takeTime(r, time.Millisecond)
		w.WriteHeader(http.StatusNoContent)
	})
	wantRows(t, run(t, serve(t, mute), quick), []string{"replay", "mismatch", "burst", "in-flight", "disconnect"}, nil)
}

// The row about tenants counts nothing.
func TestConform_AMarkerShowsThatATenantsResponseIsGoneAlthoughEffectsAreCounted(t *testing.T) {
	t.Parallel()
	s := newShop()
	mute := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			s.ServeHTTP(w, r)
			return
		}
		s.ServeHTTP(httptest.NewRecorder(), r)
		w.WriteHeader(http.StatusNoContent)
	})
	cfg := quick
	cfg.Only = []string{"replay", "tenants"}
	wantRows(t, run(t, serve(t, newLayer("another tenant takes a key over", mute)), cfg), []string{"tenants"}, nil)
	wantRows(t, run(t, serve(t, newLayer("", mute)), cfg), []string{}, []string{})
}

func TestConform_AMarkerTellsReplaysFromEqualResponses(t *testing.T) {
	t.Parallel()
	mute := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	for bug, failed := range map[string][]string{
		"": {}, "bodies are not compared": {"mismatch"}, "tenants share keys": {"tenants"}, "case is folded": {"case"}, "a missing key counts as a key": {"missing"},
		"another body forgets the first": {"mismatch"}, "quotes make another key": {"forms"}, "another tenant takes a key over": {"tenants"},
		"a malformed key is ignored": {"malformed"}, "two keys count as none": {"repeated"}, "a long key is ignored": {"over-long"},
	} {
		target := serve(t, newLayer(bug, mute))
		target.CountURL, target.Count = "", ""
		report := run(t, target, quick)
		if got := with(report, conform.Fail); !slices.Equal(got, failed) {
			t.Errorf("%s: %q fail, want %q", bug, got, failed)
		}
	}
}

// Every request that arrives before the first response runs by itself, and equal responses
// that are not marked look like those of one run.
func TestConform_WithoutACountConcurrentResponsesThatAreNotMarkedAreNoPass(t *testing.T) {
	t.Parallel()
	const say = "give the URL of a count of effects (CountURL, --count-url)."
	for row, c := range map[string]struct {
		together int // the number of requests with one key that run at a time
		detail   string
	}{
		"burst":     {8, "8 of 8 responses are not marked as replays, and may come from one run or from several: " + say},
		"in-flight": {2, "Neither the response of a running request nor that of its repeat is marked as a replay, so they may come from one run or from two: " + say},
	} {
		var mu sync.Mutex
		requests, of, all := 0, map[string]int{}, map[string]chan struct{}{}
		target := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			key := r.Header.Get("Idempotency-Key")
			mu.Lock()
			requests++
			of[key]++
			if all[key] == nil {
				all[key] = make(chan struct{})
			}
			meets := requests <= 3 // the check's first requests come one after the other
			n, ready := of[key], all[key]
			if n == c.together && !meets {
				close(ready)
			}
			mu.Unlock()
			if n > 1 && meets || n > c.together {
				w.Header().Set("Idempotency-Replayed", "true")
			} else if !meets {
				<-ready
			}
			w.WriteHeader(http.StatusNoContent)
		}))
		target.CountURL, target.Count = "", ""
		cfg := quick
		cfg.Only = []string{row}
		report := run(t, target, cfg)
		wantRows(t, report, []string{}, cfg.Only)
		wantDetail(t, report, row, c.detail)
	}
}

func TestConform_WhatASecondTenantAndOperationNeed(t *testing.T) {
	t.Parallel()
	cfg := conform.Config{Only: []string{"tenants", "operation"}}
	target := serve(t, newLayer("", newShop()))
	target.OtherURL = "/nowhere"
	wantRows(t, run(t, target, cfg), []string{}, []string{"operation"})
	target.OtherURL, target.Other = "", nil
	wantRows(t, run(t, target, cfg), []string{}, []string{"tenants", "operation"})

	next := newLayer("", newShop())
	target = serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Tenant") == "tenant-of-b" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	}))
	if _, err := conform.Run(t.Context(), target, cfg); err == nil || !strings.Contains(err.Error(), "the second tenant's request got 401: give valid credentials") {
		t.Errorf("credentials that are not valid: %v", err)
	}
}

func TestConform_WithoutAFieldToVaryADifferentBodyIsNotTried(t *testing.T) {
	t.Parallel()
	target := serve(t, newLayer("", newShop()))
	target.Fresh = ""
	wantRows(t, run(t, target, quick), []string{}, []string{"mismatch", "missing"})
	target.Body = []byte(`{"note": "lamp {{fresh}}"}`)
	wantRows(t, run(t, target, quick), []string{}, []string{"missing"})
}

func TestConform_ARowShowsItsRequestsAndResponsesWithoutCredentials(t *testing.T) {
	t.Parallel()
	report := run(t, serve(t, newLayer("", newShop())), quick)
	for _, row := range report.Rows {
		if row.Title == "" || row.Advice == "" || row.Detail == "" || len(row.Exchanges) == 0 {
			t.Errorf("%+v", row)
		}
		for _, e := range row.Exchanges {
			all := string(e.Request) + string(e.Response)
			if strings.Contains(all, "tenant-of-") || strings.Contains(all, "=s1") {
				t.Errorf("%s shows a credential: %s", row.ID, all)
			}
			if !strings.HasPrefix(all, "POST /") && !strings.HasPrefix(all, "GET /") || e.Note == "" {
				t.Errorf("%s: %+v", row.ID, e)
			}
		}
	}
	if !strings.Contains(string(report.Rows[0].Exchanges[0].Request), "X-Tenant: [redacted]\r\n") {
		t.Errorf("%s", report.Rows[0].Exchanges[0].Request)
	}
}

func TestConform_ATestFailsForARowThatFails(t *testing.T) {
	t.Parallel()
	got := &recording{T: t}
	conform.Test(got, serve(t, newLayer("case is folded", newShop())), conform.Config{Only: []string{"case", "missing", "replay"}})
	if len(got.errors) != 1 || !strings.Contains(got.errors[0], "case: Keys that differ only in case are different keys\n") ||
		!strings.Contains(got.errors[0], "POST /orders HTTP/1.1") || !strings.Contains(got.errors[0], "binary collation") {
		t.Errorf("%q", got.errors)
	}
	if len(got.logs) != 1 || !strings.HasPrefix(got.logs[0], "missing: not supported: ") {
		t.Errorf("%q", got.logs)
	}
	got = &recording{T: t}
	conform.Test(got, conform.Target{URL: "http://127.0.0.1:1"}, conform.Config{})
	if len(got.errors) != 1 || !strings.Contains(got.errors[0], "connect") {
		t.Errorf("%q", got.errors)
	}
}

type recording struct {
	*testing.T
	errors, logs []string
}

func (r *recording) Log(args ...any) { r.logs = append(r.logs, fmt.Sprint(args...)) }

func (r *recording) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}
