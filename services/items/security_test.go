package items

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/services/internal/serving"
)

// The rows are those of the project's list of attacks.

func TestSecurity_TwoOwnersWithTheSameKeyAndBodyGetTwoItems(t *testing.T) {
	w := newWorld(t, Config{Tenant: func(r *http.Request) string { return r.Header.Get("X-Owner") }})
	alice := w.post(mug, key, "k1", "X-Owner", "alice")
	bob := w.post(mug, key, "k1", "X-Owner", "bob")
	if alice.Status != 201 || bob.Status != 201 || alice.item.ID == bob.item.ID || bob.Header.Get("Idempotency-Replayed") != "" {
		t.Errorf("alice got %d %s, bob %d %s", alice.Status, alice.Body, bob.Status, bob.Body)
	}
	same(t, alice, w.post(mug, key, "k1", "X-Owner", "alice"))
	same(t, bob, w.post(mug, key, "k1", "X-Owner", "bob"))
	if got := w.post(strings.Replace(mug, "Mug", "Cup", 1), key, "k1", "X-Owner", "carol"); got.Status != 201 {
		t.Errorf("another body of another owner: %s", got.Body)
	}
	w.post(mug, key, "k1").want(t, 401, "TENANT_MISSING")
	if n := w.count("items_items"); n != 3 {
		t.Errorf("%d items", n)
	}
}

func TestSecurity_ARejectedBodyDoesNotTakeAKey(t *testing.T) {
	w := newWorld(t, Config{})
	w.post(`{"sku":""}`, key, "k1").want(t, 400, "VALIDATION_ERROR")
	if n := w.count("onlyonce_records"); n != 0 {
		t.Errorf("%d records", n)
	}
	if got := w.post(mug, key, "k1"); got.Status != 201 {
		t.Error(got.Body)
	}
}

func TestSecurity_BodiesThatReadersMayUnderstandDifferentlyAreRejected(t *testing.T) {
	w := newWorld(t, Config{})
	rest := `"title":"t","status":"active"}`
	for _, body := range []string{
		`{"sku":"a","sku":"b",` + rest, `{"sku":"a","SKU":"b",` + rest, `{"sku":"a","\u0073ku":"b",` + rest,
		`{"sku":"\udc00",` + rest, "{\"sku\":\"\xc3\"," + rest,
	} {
		w.post(body).want(t, 400, "VALIDATION_ERROR")
	}
	// "ä" has two forms in Unicode, and they are two bodies.
	w.post("{\"sku\":\"\u00e4\","+rest, key, "k1")
	w.post("{\"sku\":\"a\u0308\","+rest, key, "k1").want(t, 409, "IDEMPOTENCY_KEY_CONFLICT")
}

func TestSecurity_OneKeyHeaderOrNone(t *testing.T) {
	w := newWorld(t, Config{})
	w.post(mug, key, "a", key, "b").want(t, 400, "IDEMPOTENCY_KEY_INVALID")
	w.post(mug, key, "a", key, "").want(t, 400, "IDEMPOTENCY_KEY_INVALID")
	if got := w.post(mug, "Idempotency_Key", "a b"); got.Status != 201 {
		t.Errorf("another header's name: %s", got.Body)
	}
}

func TestSecurity_APageOfAnotherOriginCanNotWrite(t *testing.T) {
	w := newWorld(t, Config{})
	for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://example.org"}} {
		w.post(mug, append(header, key, "k1")...).want(t, 403, "CROSS_ORIGIN")
		if got := w.send("GET", base, "", header...); got.Status != 200 {
			t.Errorf("reading: %d %s", got.Status, got.Body)
		}
	}
	if w.count("items_items") != 0 || w.count("onlyonce_records") != 0 {
		t.Error("something ran")
	}
	if got := w.post(mug, key, "k1", "Sec-Fetch-Site", "same-origin"); got.Status != 201 {
		t.Error(got.Body)
	}
}

func TestSecurity_AllThatClientsSayIsBoundNotPasted(t *testing.T) {
	w := newWorld(t, Config{})
	evil := `x'); DROP TABLE items_items; --`
	got := w.post(`{"sku":"`+evil+`","title":"t","status":"active"}`, key, "k1")
	if got.Status != 201 || got.item.SKU != evil || w.count("items_items") != 1 {
		t.Error(got.Body)
	}
	w.send("GET", base+"/1%20OR%201=1", "").want(t, 404, "NOT_FOUND")
}

func TestSecurity_AConflictNeverEchoesTheFirstResponse(t *testing.T) {
	w := newWorld(t, Config{})
	w.post(`{"sku":"SECRET","title":"t","status":"active","brand":"ACME"}`, key, "k1")
	got := w.post(mug, key, "k1")
	got.want(t, 409, "IDEMPOTENCY_KEY_CONFLICT")
	for _, part := range []string{"SECRET", "ACME", "created_at", "201"} {
		if strings.Contains(got.Body, part) {
			t.Errorf("the conflict tells %q: %s", part, got.Body)
		}
	}
	for name := range got.Header {
		if strings.HasPrefix(name, "Idempotency-") {
			t.Errorf("the conflict has the header %s", name)
		}
	}
}

func TestSecurity_APageOfLongItemsIsShort(t *testing.T) {
	w := newWorld(t, Config{})
	long := strings.Repeat("<", 60_000) // six times as long in the response
	var made, seen []int64
	for range 5 {
		made = append(made, w.post(`{"sku":"s","title":"t","status":"draft","brand":"`+long+`"}`).item.ID)
	}
	for query := "?limit=200"; ; {
		if got := w.send("GET", base+query, ""); len(got.Body) > 512<<10 {
			t.Fatalf("a page has %d bytes", len(got.Body))
		}
		ids, next := w.list(query)
		if seen = append(seen, ids...); next == "" {
			break
		}
		query = "?limit=200&cursor=" + next
	}
	if !slices.Equal(seen, made) {
		t.Errorf("the pages have %v, made were %v", seen, made)
	}
}

func TestSecurity_ACallerWithTooManyRequestsGetsARetryTime(t *testing.T) {
	w := newWorld(t, Config{})
	rec := httptest.NewRecorder()
	w.api.reject(rec, httptest.NewRequest("GET", base, nil), serving.ErrTooManyRequests)
	newReply(t, rec.Code, rec.Header(), rec.Body.Bytes()).want(t, 429, "TOO_MANY_REQUESTS")
	if rec.Header().Get("Retry-After") != "1" {
		t.Errorf("Retry-After is %q", rec.Header().Get("Retry-After"))
	}
}
