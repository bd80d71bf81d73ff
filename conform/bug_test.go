package conform_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/onlyonce-go/onlyonce/conform"
)

// bugs maps each bug of a layer to the row that must catch it.
var bugs = map[string]string{
	"a replay has the status 200":                         "replay",
	"a replay is written anew":                            "replay",
	"a replay has no Location":                            "replay",
	"bodies are not compared":                             "mismatch",
	"another body runs":                                   "mismatch",
	"another body gets 500":                               "mismatch",
	"another body forgets the first":                      "mismatch",
	"concurrent requests run":                             "burst",
	"concurrent requests run, although they are rejected": "burst",
	"concurrent requests leave the key in flight":         "burst",
	"concurrent requests make it forget the key":          "burst",
	"a repeat of a request in flight gets 500":            "in-flight",
	"the key of a client that hangs up is forgotten":      "disconnect",
	"the key of a client that hangs up stays in flight":   "disconnect",
	"a command is claimed before its body is read":        "cut-off",
	"an error is never settled":                           "error",
	"an error gets no response":                           "error",
	"an error is forgotten for a success":                 "error",
	"an error takes effect each time":                     "error",
	"a missing key counts as a key":                       "missing",
	"a request without a key is rejected, but runs":       "missing",
	"a request without a key gets 500":                    "missing",
	"an empty key counts as a key":                        "empty",
	"an empty key gets 500":                               "empty",
	"an empty key counts as none, which is rejected":      "empty",
	"a malformed key is truncated":                        "malformed",
	"a malformed key is ignored":                          "malformed",
	"the first of two keys counts":                        "repeated",
	"the last of two keys counts":                         "repeated",
	"two keys count as none":                              "repeated",
	"a long key is truncated":                             "over-long",
	"an accepted key is truncated":                        "over-long",
	"a long key is ignored":                               "over-long",
	"a long key is rejected, but its request runs":        "over-long",
	"a long key gets 500":                                 "over-long",
	"a long key stays in flight":                          "over-long",
	"quotes make another key":                             "forms",
	"a quoted key gets 500":                               "forms",
	"case is folded":                                      "case",
	"a problem has another status":                        "problem",
	"a dead link":                                         "link",
	"a link to no page":                                   "link",
	"a link to a page that breaks":                        "link",
	"a first response is marked as a replay":              "marker",
	"a cookie is replayed":                                "cookie",
	"tenants share keys":                                  "tenants",
	"tenants learn of used keys":                          "tenants",
	"another tenant takes a key over":                     "tenants",
	"operations share responses":                          "operation",
	"another operation with the key gets 500":             "operation",
	"GET is replayed":                                     "safe-method",
	"GET with a key gets 500":                             "safe-method",
}

// choices maps each permitted choice of a layer to the rows that it makes "not supported".
var choices = map[string][]string{
	"":                             {"missing"},
	"an empty key counts as none":  {"missing", "empty"},
	"any text is a key":            {"missing", "malformed"},
	"two keys are joined":          {"missing", "repeated"},
	"only bare keys":               {"missing", "forms"},
	"only UUIDs are keys":          {"missing", "case"},
	"replays are not marked":       {"missing", "marker"},
	"no cookies":                   {"missing", "cookie"},
	"only small letters are keys":  {"missing", "case"},
	"GET with a key is rejected":   {"missing", "safe-method"},
	"operations share keys":        {"missing"},
	"a different request gets 417": {"missing"},
	"a link to elsewhere":          {"missing"},
}

// An outcome is the report on one layer.
type outcome struct {
	report conform.Report
	err    error
}

// outcomes runs the checks against layers, several at a time: they mostly wait.
func outcomes(t *testing.T, names iter.Seq[string], counted bool) map[string]*outcome {
	got := map[string]*outcome{}
	var all sync.WaitGroup
	several := make(chan struct{}, 12)
	for name := range names {
		target, o := serve(t, newLayer(name, newShop().slowly())), &outcome{}
		got[name] = o
		if !counted {
			target.CountURL, target.Count = "", ""
		}
		all.Go(func() {
			several <- struct{}{}
			defer func() { <-several }()
			for range 3 { // a race does not show every time
				if o.report, o.err = conform.Run(t.Context(), target, quick); o.report.Count(conform.Fail) > 0 || bugs[name] == "" {
					break
				}
			}
		})
	}
	all.Wait()
	return got
}

func TestBug_EveryBugIsCaughtByItsRowAndNoOther(t *testing.T) {
	t.Parallel()
	caught := map[string]bool{}
	for bug, got := range outcomes(t, maps.Keys(bugs), true) {
		caught[bugs[bug]] = true
		t.Run(bug, func(t *testing.T) {
			if got.err != nil {
				t.Fatal(got.err)
			}
			wantRows(t, got.report, []string{bugs[bug]}, nil)
		})
	}
	for _, row := range conform.Rows() {
		if !caught[row.ID] {
			t.Errorf("no bug is there for the row %s", row.ID)
		}
	}
}

func TestRows_OnlyTheseAreAdvisory(t *testing.T) {
	var advisory []string
	for _, row := range conform.Rows() {
		if row.Advisory {
			advisory = append(advisory, row.ID)
		}
	}
	if want := []string{"error", "forms", "problem", "link", "marker", "safe-method"}; !slices.Equal(advisory, want) {
		t.Errorf("advisory are %v", advisory)
	}
	report := conform.Report{Rows: []conform.Row{{Verdict: conform.Fail, Advisory: true}, {Verdict: conform.Fail}, {Verdict: conform.NotSupported}}}
	if n := report.Critical(); n != 1 {
		t.Errorf("%d of the failed rows are critical", n)
	}
}

func TestBug_ManyBugsShowInResponsesToo(t *testing.T) {
	t.Parallel()
	for bug, got := range outcomes(t, slices.Values([]string{
		"another body runs", "bodies are not compared", "concurrent requests run", "concurrent requests leave the key in flight", "concurrent requests make it forget the key",
		"a missing key counts as a key", "an empty key counts as a key", "a malformed key is truncated", "the last of two keys counts", "a long key is truncated", "case is folded",
	}), false) {
		t.Run("uncounted, "+bug, func(t *testing.T) {
			if got.err != nil {
				t.Fatal(got.err)
			}
			wantRows(t, got.report, []string{bugs[bug]}, nil)
		})
	}
}

func TestBug_WhatMayBeDoneOtherwiseFailsNoRow(t *testing.T) {
	t.Parallel()
	for choice, got := range outcomes(t, maps.Keys(choices), true) {
		t.Run("it is chosen that "+choice, func(t *testing.T) {
			if got.err != nil {
				t.Fatal(got.err)
			}
			wantRows(t, got.report, []string{}, choices[choice])
		})
	}
}

func TestBug_AnAPIThatRejectsEveryRepeatFailsButRejectsOtherBodies(t *testing.T) {
	t.Parallel()
	rejecting := func() conform.Target { return serve(t, newLayer("a repeat is rejected", newShop())) }
	patient := []string{"burst", "in-flight", "disconnect"} // they repeat the request until their time is over
	var all sync.WaitGroup
	for _, id := range patient {
		cfg := quick
		cfg.Only = []string{id}
		target := rejecting()
		all.Go(func() {
			report, err := conform.Run(t.Context(), target, cfg)
			if got := with(report, conform.Fail); err != nil || !slices.Equal(got, cfg.Only) {
				t.Errorf("%s: the rows %q fail, %v", id, got, err)
			}
		})
	}
	cfg := quick
	cfg.Skip = patient
	report := run(t, rejecting(), cfg)
	all.Wait()
	wantRows(t, report, []string{"replay"}, nil)
	wantDetail(t, report, "replay", "The first request got 201, and its repeat got 409.")
	wantDetail(t, report, "mismatch", "A different body was rejected with 422.")
}

func TestBug_ARepeatThatRunsAndCallsItselfAReplayFails(t *testing.T) {
	t.Parallel()
	s, seen := newShop(), sync.Map{}
	target := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if key := r.Header.Get("Idempotency-Key"); key != "" {
			if _, again := seen.LoadOrStore(key, true); again {
				w.Header().Set("Idempotency-Replayed", "true")
			}
		}
		s.ServeHTTP(w, r)
	}))
	target.CountURL, target.Count = "", ""
	wantRows(t, run(t, target, quick), []string{"replay", "mismatch", "burst", "in-flight", "disconnect"}, nil)
}

func TestBug_ALayerWithoutABugPassesEveryRow(t *testing.T) {
	t.Parallel()
	target := serve(t, newLayer("", newShop()))
	wantRows(t, run(t, target, quick), []string{}, []string{"missing"})
	target.CountURL, target.Count = "", ""
	wantRows(t, run(t, target, quick), []string{}, []string{"missing"})
}

func TestBug_ARecordOfAKeyAndItsBodyHidesNoSharedKey(t *testing.T) {
	t.Parallel()
	for row, shared := range map[string]func(lines []string) string{
		"repeated":  func(lines []string) string { return lines[0] },
		"over-long": func(lines []string) string { return lines[0][:min(len(lines[0]), 60)] },
		"case":      func(lines []string) string { return strings.ToLower(lines[0]) },
		"malformed": func(lines []string) string { return strings.Fields(lines[0])[0] },
	} {
		for _, counted := range []bool{true, false} {
			next := newLayer("any text is a key", newShop())
			target := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if lines := r.Header["Idempotency-Key"]; lines != nil {
					body, err := io.ReadAll(r.Body)
					if err != nil {
						return // the client is gone
					}
					r.Body = io.NopCloser(bytes.NewReader(body))
					r.Header.Set("Idempotency-Key", fmt.Sprintf("%s-%x", shared(lines), sha256.Sum256(body)))
				}
				next.ServeHTTP(w, r)
			}))
			if !counted {
				target.CountURL, target.Count = "", ""
			}
			cfg := quick
			cfg.Only = []string{row}
			wantRows(t, run(t, target, cfg), []string{row}, nil)
		}
	}
}
