package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

func TestConsole_ADecisionTakesEffectAndTheTrailSaysWhoAndWhy(t *testing.T) {
	want := onlyonce.Result{Status: 201, Header: map[string][]string{"Content-Type": {"text/plain"}, "X-A": {"1", "2"}}, Body: []byte("one\ntwo"), Ref: "ch_17"}
	for action, c := range map[string]struct {
		more url.Values
		says string
		hold func(onlyonce.Record) bool
	}{
		"completed": {
			url.Values{"status": {"201"}, "header": {"Content-Type: text/plain\r\nX-A: 1\r\n\r\nX-A: 2"}, "body": {"one\r\ntwo"}, "ref": {"ch_17"}},
			"completed with 201",
			func(r onlyonce.Record) bool {
				return r.State == onlyonce.StateCompleted && r.Result.Status == 201 && string(r.Result.Body) == string(want.Body) && r.Result.Ref == want.Ref &&
					strings.Join(r.Result.Header["X-A"], " ") == "1 2" && r.KeepLeft > 23*time.Hour
			},
		},
		"failed": {nil, "failed (final)", func(r onlyonce.Record) bool {
			return r.State == onlyonce.StateFailed && r.Final && r.Error == "ticket 4711"
		}},
		"rerun": {nil, "Allowed to run again", func(r onlyonce.Record) bool { return r.State == onlyonce.StateFailed && !r.Final }},
		"extend": {
			url.Values{"keep": {"7d"}},
			"Decided by a person: unknown",
			func(r onlyonce.Record) bool {
				return r.State == onlyonce.StateUnknown && string(r.Result.Body) == "kept" && r.KeepLeft > 6*24*time.Hour
			},
		},
		"delete": {nil, "Deleted by a person", nil},
	} {
		t.Run(action, func(t *testing.T) {
			s := open(t, nil)
			s.settle(payment, onlyonce.Settlement{State: onlyonce.StateUnknown, Result: onlyonce.Result{Body: []byte("kept")}, Keep: time.Hour})
			id := recordID(payment)
			b := s.logIn(adasToken)
			r, page := b.decide(id, action, c.more)
			if r.StatusCode != http.StatusSeeOther {
				t.Fatalf("%d\n%s", r.StatusCode, page)
			}
			now, err := s.store.Lookup(t.Context(), payment)
			if c.hold == nil && !errors.Is(err, onlyonce.ErrNotFound) || c.hold != nil && (err != nil || !c.hold(now)) {
				t.Errorf("the record is %+v, %v", now, err)
			}
			if len(s.store.trail) != 1 || s.store.trail[0].Actor != "ada" || s.store.trail[0].Reason != "ticket 4711" {
				t.Errorf("the trail is %+v", s.store.trail)
			}
			if _, page := b.get("records/" + id); !strings.Contains(page, c.says) || !strings.Contains(page, "ticket 4711") || !strings.Contains(page, "ada") {
				t.Errorf("the page does not say %q:\n%s", c.says, page)
			}
		})
	}
}

func TestConsole_AFormWithAMistakeChangesNothingAndKeepsWhatWasEntered(t *testing.T) {
	s := open(t, nil)
	id := s.unknown(payment, onlyonce.Result{})
	b := s.logIn(adasToken)
	for name, more := range map[string]url.Values{
		"no reason":                           {"reason": {" \r\n "}},
		"a long reason":                       {"reason": {strings.Repeat("a", 3000)}},
		"a reason with NUL":                   {"reason": {"a\x00b"}},
		"no action":                           {"action": {""}},
		"another action":                      {"action": {"release"}},
		"no keep":                             {"keep": {"-1h"}},
		"a status":                            {"status": {"99"}},
		"a status in words":                   {"status": {"ok"}},
		"a header":                            {"header": {"no colon"}},
		"a split header":                      {"header": {"X-A: a\rSet-Cookie: b"}},
		"a header's name":                     {"header": {"X A: a"}},
		"a length":                            {"header": {"content-length: 1"}},
		"rerun, unsure":                       {"action": {"rerun"}, "sure": {""}},
		"delete, unsure":                      {"action": {"delete"}, "sure": {"no"}},
		"no fence":                            {"fence": {""}},
		"an end of what waits for a decision": {"action": {"extend"}, "keep": {"7d"}},
	} {
		values := url.Values{"body": {"what was entered"}, "status": {"200"}}
		for field, value := range more {
			values[field] = value
		}
		if r, page := b.decide(id, "completed", values); r.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(page, `role="alert"`) || !strings.Contains(page, "what was entered") {
			t.Errorf("%s: %d\n%s", name, r.StatusCode, page)
		}
	}
	if r, err := s.store.Lookup(t.Context(), payment); err != nil || r.State != onlyonce.StateUnknown || len(s.store.trail) > 0 {
		t.Errorf("the record is %+v, %v, with the trail %v", r, err, s.store.trail)
	}
}

func TestConsole_ADecisionAboutARecordThatHasChangedIsRejectedAndSaysSo(t *testing.T) {
	claim := func(t *testing.T, s *site, lease time.Duration) onlyonce.Hold {
		r, err := s.store.Claim(t.Context(), onlyonce.Claim{ID: payment, Owner: "fedcba9876543210", SkipFingerprint: true, Lease: lease, TakeUnknown: true})
		if err != nil {
			t.Fatal(err)
		}
		return onlyonce.Hold{ID: payment, Owner: r.Owner, Fence: r.Fence}
	}
	for name, c := range map[string]struct {
		change func(t *testing.T, s *site)
		says   string
	}{
		"an attempt runs": {func(t *testing.T, s *site) { claim(t, s, time.Hour) }, "holds the command"},
		"an attempt has ended": {func(t *testing.T, s *site) {
			if err := s.store.Settle(t.Context(), claim(t, s, time.Hour), onlyonce.Settlement{State: onlyonce.StateCompleted}); err != nil {
				t.Fatal(err)
			}
		}, "is completed now"},
		"an attempt has ended as before": {func(t *testing.T, s *site) {
			if err := s.store.Settle(t.Context(), claim(t, s, time.Hour), onlyonce.Settlement{State: onlyonce.StateUnknown}); err != nil {
				t.Fatal(err)
			}
		}, "since you opened the page"},
		"someone else has decided": {func(t *testing.T, s *site) {
			r, _ := s.store.Lookup(t.Context(), payment)
			if err := s.store.Resolve(t.Context(), r, onlyonce.Settlement{State: onlyonce.StateUnknown}); err != nil {
				t.Fatal(err)
			}
		}, "since you opened the page"},
		"it was deleted": {func(t *testing.T, s *site) {
			r, _ := s.store.Lookup(t.Context(), payment)
			if err := s.store.Resolve(t.Context(), r, onlyonce.Settlement{}); err != nil {
				t.Fatal(err)
			}
		}, "no longer exists"},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, nil)
			id := s.unknown(payment, onlyonce.Result{})
			b := s.logIn(adasToken)
			seen, err := s.store.Lookup(t.Context(), payment)
			if err != nil {
				t.Fatal(err)
			}
			form := url.Values{"action": {"delete"}, "reason": {"my reason"}, "keep": {"24h"}, "sure": {"yes"}, "state": {"unknown"}, "fence": {fence(seen)}}
			c.change(t, s)
			before, foundBefore := s.store.Lookup(t.Context(), payment)
			r, page := b.submit("records", "records/"+id, form)
			if r.StatusCode != http.StatusConflict || !strings.Contains(page, c.says) {
				t.Errorf("%d\n%s", r.StatusCode, page)
			}
			after, found := s.store.Lookup(t.Context(), payment)
			if errors.Is(found, onlyonce.ErrNotFound) != errors.Is(foundBefore, onlyonce.ErrNotFound) || before.Fence != after.Fence || before.State != after.State || len(s.store.trail) > 0 {
				t.Errorf("the record was %+v and is %+v, %v", before, after, found)
			}
		})
	}
}

// A tiredStore does not say whether a decision took effect.
type tiredStore struct{ *auditedStore }

func (s tiredStore) ResolveAudited(ctx context.Context, seen onlyonce.Record, st onlyonce.Settlement, d onlyonce.Decision) error {
	if err := s.auditedStore.ResolveAudited(ctx, seen, st, d); err != nil {
		return err
	}
	return errors.New("the connection to secret-host broke")
}

func TestConsole_ADecisionThatTheStoreDoesNotConfirmMayHaveTakenEffect(t *testing.T) {
	var inner *auditedStore
	s := open(t, func(c *Config) {
		inner = c.Store.(*auditedStore)
		c.Store = tiredStore{inner}
	})
	id := s.unknown(payment, onlyonce.Result{})
	r, page := s.logIn(adasToken).decide(id, "failed", nil)
	if r.StatusCode != http.StatusServiceUnavailable || !strings.Contains(page, "may have taken effect") || strings.Contains(page, "secret-host") || !strings.Contains(page, "ticket 4711") {
		t.Errorf("%d\n%s", r.StatusCode, page)
	}
}

func TestConsole_ARecordOfWhichOnlyTheIDIsLeftCanOnlyBeDeleted(t *testing.T) {
	s := open(t, nil)
	s.settle(payment, onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{Body: []byte("gone"), Keep: time.Nanosecond}, Keep: time.Hour})
	id := recordID(payment)
	b := s.logIn(adasToken)
	_, page := b.get("records/" + id)
	if strings.Contains(page, "gone") || strings.Contains(page, `value="extend"`) || strings.Contains(page, `value="rerun"`) || !strings.Contains(page, "is not kept any more") {
		t.Errorf("the page is\n%s", page)
	}
	if r, page := b.decide(id, "completed", url.Values{"status": {"200"}}); r.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(page, "it can be deleted, and nothing else") {
		t.Errorf("%d\n%s", r.StatusCode, page)
	}
	if r, page := b.decide(id, "delete", nil); r.StatusCode != http.StatusSeeOther {
		t.Errorf("%d\n%s", r.StatusCode, page)
	}
	if r, err := s.store.Lookup(t.Context(), payment); !errors.Is(err, onlyonce.ErrNotFound) {
		t.Errorf("the record is %+v, %v", r, err)
	}
}

func TestConsole_AnExtensionKeepsTheResponseAndForgetsTheKeyNoEarlier(t *testing.T) {
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		was, result   time.Duration // how long the record is kept, and its result
		keep          string
		record, after time.Duration // the same afterwards; 0: for good, or as long as the record
	}{
		"within":       {30 * day, time.Hour, "7d", 30 * day, 7 * day},
		"beyond":       {2 * day, time.Hour, "7d", 7 * day, 0},
		"for good":     {2 * day, time.Hour, "forever", 0, 0},
		"within good":  {onlyonce.KeepForever, time.Hour, "7d", 0, 7 * day},
		"without both": {2 * day, 0, "24h", day, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, nil)
			s.settle(payment, onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{Body: []byte("kept"), Keep: c.result}, Keep: c.was})
			if r, page := s.logIn(adasToken).decide(recordID(payment), "extend", url.Values{"keep": {c.keep}}); r.StatusCode != http.StatusSeeOther {
				t.Fatalf("%d\n%s", r.StatusCode, page)
			}
			near := func(is, want time.Duration) bool { return is <= want && (want == 0 || is > want-time.Hour) }
			if r, err := s.store.Lookup(t.Context(), payment); err != nil || !near(r.KeepLeft, c.record) || !near(r.Result.Keep, c.after) || string(r.Result.Body) != "kept" {
				t.Errorf("the record is kept for %v, and its result for %v; %v", r.KeepLeft, r.Result.Keep, err)
			}
		})
	}
}
