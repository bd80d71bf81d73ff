package console

import (
	"context"
	"errors"
	"fmt"
	"html"
	"iter"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

func (b *browser) search(values url.Values) (location, page string) {
	b.t.Helper()
	r, page := b.submit("records", "records", values)
	if r.StatusCode != http.StatusSeeOther {
		b.t.Fatalf("the search got %d\n%s", r.StatusCode, page)
	}
	location = r.Header.Get("Location")
	_, page = b.get(strings.TrimPrefix(location, DefaultPath))
	return location, page
}

func TestConsole_AKeyIsFoundAndIsInNoAddress(t *testing.T) {
	s := open(t, nil)
	id := s.unknown(payment, onlyonce.Result{Ref: "ch_17"})
	for n := range 200 {
		s.unknown(onlyonce.ID{Tenant: fmt.Sprint("tenant ", n), Operation: "POST /payments", Key: "order-18"}, onlyonce.Result{})
	}
	b := s.logIn(bobsToken)
	for name, values := range map[string]url.Values{
		"the whole ID": {"key": {"order-17"}, "tenant": {"acme"}, "operation": {"POST /payments"}},
		"the key":      {"key": {"order-17"}},
		"more":         {"key": {"order-17"}, "state": {"unresolved"}, "ref": {"ch_17"}},
		"the ref":      {"ref": {"ch_17"}},
		"the tenant":   {"tenant": {"acme"}},
	} {
		location, page := b.search(values)
		if strings.Contains(location, "order-17") || !strings.Contains(page, DefaultPath+"records/"+id) || strings.Contains(page, "order-18") {
			t.Errorf("%s leads to %s\n%s", name, location, page)
		}
	}
	if location, _ := b.search(url.Values{"key": {id[:16]}}); location != DefaultPath+"records/"+id {
		t.Errorf("the beginning of its id leads to %s", location)
	}
	for name, values := range map[string]url.Values{
		"another key": {"key": {"order-19"}}, "another tenant": {"key": {"order-17"}, "tenant": {"bolt"}, "operation": {"POST /payments"}}, "another state": {"key": {"order-17"}, "state": {"completed"}},
	} {
		if _, page := b.search(values); !strings.Contains(page, "No record matches") {
			t.Errorf("%s:\n%s", name, page)
		}
	}
	if r, _ := b.submit("records", "records", url.Values{"older": {"yesterday"}}); r.StatusCode != http.StatusBadRequest {
		t.Errorf("a wrong age got %d", r.StatusCode)
	}
}

func TestConsole_ThePagesOfAListHaveEveryRecordOnce(t *testing.T) {
	s := open(t, nil)
	for n := range 3*pageSize + 7 {
		id := onlyonce.ID{Tenant: "acme", Operation: "POST /payments", Key: fmt.Sprint("secret-key-", n)}
		state := onlyonce.StateCompleted
		if n%2 == 1 {
			state = onlyonce.StateUnknown
		}
		s.settle(id, onlyonce.Settlement{State: state})
	}
	b := s.logIn(bobsToken)
	link := regexp.MustCompile(`href="` + DefaultPath + `records/([0-9a-f]{64})"`)
	next := regexp.MustCompile(`href="([^"]*)" rel="next"`)
	for page, want := range map[string]int{"records": 3*pageSize + 7, "decisions": (3*pageSize + 7) / 2, "records?tenant=acme": 3*pageSize + 7, "records?state=failed": 0, "records?state=unresolved&tenant=acme": (3*pageSize + 7) / 2, "records?older=24h": 0, "records?after=forged": 3*pageSize + 7} {
		seen := map[string]bool{}
		for at := page; at != ""; {
			_, text := b.get(at)
			for _, found := range link.FindAllStringSubmatch(text, -1) {
				if seen[found[1]] {
					t.Fatalf("%s has %s twice", page, found[1])
				}
				seen[found[1]] = true
			}
			if at = ""; next.MatchString(text) {
				at = strings.TrimPrefix(html.UnescapeString(next.FindStringSubmatch(text)[1]), DefaultPath)
				if strings.Contains(at, "secret-key") {
					t.Errorf("a key is in %s", at)
				}
			}
		}
		if len(seen) != want {
			t.Errorf("%s has %d records, want %d", page, len(seen), want)
		}
	}
}

func TestConsole_TheLinksOfARecordWithEncodedCharactersLeadToIt(t *testing.T) {
	const encoded = "a%2Fb%252F+c /../d?e=f&g#h%"
	s := open(t, nil)
	of := func(key string) onlyonce.ID {
		return onlyonce.ID{Tenant: "t " + encoded, Operation: "POST /" + encoded, Key: key}
	}
	for n := range pageSize {
		s.settle(of(fmt.Sprint(n)), onlyonce.Settlement{State: onlyonce.StateUnknown, Result: onlyonce.Result{Ref: encoded}})
		s.settle(onlyonce.ID{Tenant: "t a/b/", Key: fmt.Sprint(n)}, onlyonce.Settlement{State: onlyonce.StateUnknown, Result: onlyonce.Result{Ref: encoded}})
	}
	id := of(encoded)
	want := s.unknown(id, onlyonce.Result{Ref: encoded})
	b := s.logIn(bobsToken)
	next := regexp.MustCompile(`href="([^"]*)" rel="next"`)
	for name, values := range map[string]url.Values{
		"the key": {"key": {encoded}},
		"the ID":  {"key": {encoded}, "tenant": {id.Tenant}, "operation": {id.Operation}},
	} {
		if location, page := b.search(values); !strings.Contains(page, DefaultPath+"records/"+want) {
			t.Errorf("%s leads to %s\n%s", name, location, page)
		}
	}
	_, page := b.search(url.Values{"tenant": {id.Tenant}, "operation": {id.Operation}, "ref": {encoded}})
	rows := strings.Count(page, `<tr><th scope="row"`)
	for next.MatchString(page) {
		_, page = b.get(strings.TrimPrefix(html.UnescapeString(next.FindStringSubmatch(page)[1]), DefaultPath))
		rows += strings.Count(page, `<tr><th scope="row"`)
	}
	if rows != pageSize+1 {
		t.Errorf("the pages of its tenant, operation and ref have %d records, want %d", rows, pageSize+1)
	}
	if _, page := b.get("records/" + want); !strings.Contains(html.UnescapeString(page), encoded) {
		t.Errorf("its page does not show its key:\n%s", page)
	}
	wanted := DefaultPath + "records?tenant=" + url.QueryEscape(id.Tenant)
	_, page = s.browser().get("login?next=" + url.QueryEscape(wanted))
	if !strings.Contains(html.UnescapeString(page), `value="`+wanted+`"`) {
		t.Errorf("the login leads elsewhere than to %s:\n%s", wanted, page)
	}
}

func TestSecurity_TextOfClientsIsShownAsText(t *testing.T) {
	const evil = "\"'><script>alert(1)</script>\x1b[2J\u202egnp.exe\u2066\x00{{.Page}}"
	s := open(t, nil)
	id := onlyonce.ID{Tenant: evil, Operation: "POST " + evil, Key: evil}
	s.settle(id, onlyonce.Settlement{State: onlyonce.StateUnknown, Error: evil, Result: onlyonce.Result{
		Status: 200, Ref: evil, Body: []byte(evil), Header: map[string][]string{"X-" + evil: {evil}},
	}})
	b := s.logIn(adasToken)
	if r, page := b.decide(recordID(id), "extend", url.Values{"keep": {"forever"}, "reason": {strings.ReplaceAll(evil, "\x00", "")}}); r.StatusCode != http.StatusSeeOther {
		t.Fatalf("the decision got %d\n%s", r.StatusCode, page)
	}
	for _, at := range []string{"", "records", "decisions", "records/" + recordID(id), "records?tenant=" + url.QueryEscape(evil) + "&ref=" + url.QueryEscape(evil), "login?next=" + url.QueryEscape(evil)} {
		r, page := b.get(at)
		if r.StatusCode >= 500 || strings.Contains(page, "<script>") || strings.ContainsAny(page, "\x1b\x00\u202e\u2066") {
			t.Errorf("%q got %d\n%s", at, r.StatusCode, page)
		}
	}
	if _, page := b.get("records/" + recordID(id)); !strings.Contains(page, "&lt;script&gt;") || !strings.Contains(page, `\u202e`) {
		t.Errorf("the page does not show it:\n%s", page)
	}
}

func fence(r onlyonce.Record) string { return fmt.Sprint(r.Fence) }

// A longStore takes a while for each record of a list.
type longStore struct{ *auditedStore }

func (s longStore) List(ctx context.Context, f onlyonce.Filter) iter.Seq2[onlyonce.Record, error] {
	return func(yield func(onlyonce.Record, error) bool) {
		for r, err := range s.auditedStore.List(ctx, f) {
			time.Sleep(scanFor / 10)
			if !yield(r, err) {
				return
			}
		}
	}
}

func TestConsole_ASearchThatTakesLongSaysHowFarItGotAndGoesOn(t *testing.T) {
	s := open(t, func(c *Config) { c.Store = longStore{c.Store.(*auditedStore)} })
	const all = 60
	for n := range all {
		state := onlyonce.StateCompleted
		if n == 0 { // the oldest
			state = onlyonce.StateFailed
		}
		s.settle(onlyonce.ID{Key: fmt.Sprint(n)}, onlyonce.Settlement{State: state, Final: true})
	}
	b := s.logIn(bobsToken)
	next := regexp.MustCompile(`href="([^"]*)" rel="next"`)
	pages := 0
	for at := "records?state=failed"; at != ""; pages++ {
		_, page := b.get(at)
		if next.MatchString(page) != strings.Contains(page, "Looked at") || strings.Contains(page, "failed (final)") == next.MatchString(page) {
			t.Fatalf("page %d is\n%s", pages, page)
		}
		if at = ""; next.MatchString(page) {
			at = strings.TrimPrefix(html.UnescapeString(next.FindStringSubmatch(page)[1]), DefaultPath)
		}
	}
	if pages < 2 || pages > all {
		t.Errorf("it took %d pages", pages)
	}
}

func TestConsole_ASearchForMoreThanAnAddressMayHaveIsRejected(t *testing.T) {
	b := open(t, nil).logIn(bobsToken)
	for field, length := range map[string]map[int]int{
		"key": {1024: http.StatusSeeOther, 1 << 20: http.StatusBadRequest},
		"ref": {1024: http.StatusSeeOther, 8000: http.StatusBadRequest},
	} {
		for n, want := range length {
			r, _ := b.submit("records", "records", url.Values{field: {strings.Repeat("z", n)}})
			if r.StatusCode != want {
				t.Errorf("a %s of %d bytes got %d, want %d", field, n, r.StatusCode, want)
			}
		}
	}
}

// A brokenStore fails to list its records.
type brokenStore struct {
	*auditedStore
	err error
}

func (s brokenStore) List(context.Context, onlyonce.Filter) iter.Seq2[onlyonce.Record, error] {
	return func(yield func(onlyonce.Record, error) bool) { yield(onlyonce.Record{}, s.err) }
}

func TestConsole_AListThatFailsSaysThatItTookTooLongOnlyIfItDid(t *testing.T) {
	for says, err := range map[string]error{
		"could not be read in time": fmt.Errorf("%w: %w", onlyonce.ErrUnavailable, context.DeadlineExceeded),
		"its key is missing":        fmt.Errorf("%w: the key of secret-host is not there", onlyonce.ErrUnavailable),
	} {
		s := open(t, func(c *Config) { c.Store = brokenStore{c.Store.(*auditedStore), err} })
		r, page := s.logIn(bobsToken).get("records")
		if r.StatusCode != http.StatusServiceUnavailable || !strings.Contains(page, says) || strings.Contains(page, "in time") != errors.Is(err, context.DeadlineExceeded) || strings.Contains(page, "secret-host") {
			t.Errorf("%v: %d\n%s", err, r.StatusCode, page)
		}
	}
}
