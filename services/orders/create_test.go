package orders

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

var createdForm = regexp.MustCompile(`^\{"id":"(ord_[0-9A-HJKMNP-TV-Z]{26})","status":"created","total":"39\.80","created_at":"([^"]+Z)"\}$`)

func TestCreate_ACreateReturnsTheOrder(t *testing.T) {
	eachEngine(t, func(w *world) {
		began := time.Now().Truncate(time.Millisecond)
		got := w.place("k1")
		found := createdForm.FindStringSubmatch(got.Body)
		if found == nil {
			w.t.Fatalf("it is %s", got.Body)
		}
		if at := got.order.CreatedAt; at.Before(began) || at.After(time.Now()) {
			w.t.Errorf("made at %v", at)
		}
		for name, want := range map[string]string{
			"Location": "/orders/" + found[1], "Content-Type": "application/json", "Idempotency-Replayed": "",
			"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff",
		} {
			if got.Header.Get(name) != want {
				w.t.Errorf("%s: %q, want %q", name, got.Header.Get(name), want)
			}
		}
		read := w.send("GET", got.Header.Get("Location"), "")
		want := strings.TrimSuffix(got.Body, "}") + `,"external_ref":"PO-7","items":[{"product_id":"prod-1","quantity":2,"unit_price":"19.90"}],"shipment":null}`
		if read.Status != 200 || read.Body != want {
			w.t.Errorf("read back: %d %s, want %s", read.Status, read.Body, want)
		}
	})
}

func TestCreate_TheRecordNamesItsOrderAndItsHash(t *testing.T) {
	eachEngine(t, func(w *world) {
		got := w.place("k1", "X-Tenant-ID", "acme")
		rec := w.record("acme", "k1")
		if rec.Result.Ref != got.order.ID || rec.Result.Status != 201 || rec.State != onlyonce.StateCompleted {
			w.t.Errorf("it is %+v", rec)
		}
		want, err := onlyonce.FingerprintJSON([]byte(two), "/items", "/external_ref")
		if err != nil {
			w.t.Fatal(err)
		}
		if fmt.Sprintf("%x", rec.Fingerprint) != fmt.Sprintf("%x", want) {
			w.t.Errorf("the hash is %x, want %x", rec.Fingerprint, want)
		}
		if left := rec.KeepLeft; left > 24*time.Hour+time.Minute || left < 24*time.Hour-time.Minute {
			w.t.Errorf("kept for %v", left)
		}
	})
}

func (w *world) record(tenant, k string) onlyonce.Record {
	w.t.Helper()
	return w.recordOf("CreateOrder", tenant, k)
}

func (w *world) recordOf(operation, tenant, k string) onlyonce.Record {
	w.t.Helper()
	rec, err := w.store.Lookup(w.t.Context(), onlyonce.ID{Tenant: tenant, Operation: operation, Key: k})
	if err != nil {
		w.t.Fatal(err)
	}
	return rec
}

func TestCreate_HowARequestIsWrittenDoesNotMatter(t *testing.T) {
	w := newWorld(t)
	first := w.place("k1")
	for _, again := range []string{
		` { "external_ref" : "PO-7", "items" : [ { "unit_price":"19.90", "quantity":2, "product_id":"prod-1" } ] } `,
		`{"items":[{"product_id":"prod-\u0031","quantity":2,"unit_price":"19.90"}],"external_ref":"PO-7","note":"unrelated"}`,
		`{"note":[1,{"x":null}],"items":[{"product_id":"prod-1","quantity":2,"unit_price":"19.90","hint":1}],"external_ref":"PO-7"}`,
	} {
		same(t, first, w.send("POST", "/orders", again, key, "k1", "X-Request-Id", "other", "User-Agent", "other"))
	}
	for _, other := range []string{
		`{"items":[{"product_id":"prod-1","quantity":3,"unit_price":"19.90"}],"external_ref":"PO-7"}`,
		`{"items":[{"product_id":"prod-1","quantity":2,"unit_price":"19.91"}],"external_ref":"PO-7"}`,
		`{"items":[{"product_id":"prod-2","quantity":2,"unit_price":"19.90"}],"external_ref":"PO-7"}`,
		`{"items":[{"product_id":"prod-1","quantity":2,"unit_price":"19.90"}],"external_ref":"PO-8"}`,
		`{"items":[{"product_id":"prod-1","quantity":2,"unit_price":"19.90"}]}`,
		`{"items":[{"product_id":"prod-1","quantity":1,"unit_price":"19.90"},{"product_id":"prod-1","quantity":1,"unit_price":"19.90"}],"external_ref":"PO-7"}`,
	} {
		w.send("POST", "/orders", other, key, "k1").want(t, 422, "idempotency_key_reused")
	}
}

func TestCreate_ARefOfNullIsNone(t *testing.T) {
	w := newWorld(t)
	body := `{"items":[{"product_id":"p","quantity":1,"unit_price":"1"}]}`
	first := w.send("POST", "/orders", body, key, "k1")
	same(t, first, w.send("POST", "/orders", strings.TrimSuffix(body, "}")+`,"external_ref":null}`, key, "k1"))
	if got := w.send("GET", first.Header.Get("Location"), ""); got.order.ExternalRef != nil {
		t.Error(got.Body)
	}
}

func TestCreate_ABodyThatIsNotValidIsRejectedByItsFieldAndLeavesTheKeyUnused(t *testing.T) {
	w := newWorld(t)
	with := func(name, value string) string {
		i := map[string]string{"product_id": `"p"`, "quantity": "1", "unit_price": `"1.00"`}
		i[name] = value
		var members []string
		for name, value := range i {
			if value != "" {
				members = append(members, fmt.Sprintf("%q:%s", name, value))
			}
		}
		return `{"items":[{"product_id":"p","quantity":1,"unit_price":"1"},{` + strings.Join(members, ",") + `}]}`
	}
	many := strings.TrimSuffix(strings.Repeat(`{"product_id":"p","quantity":1,"unit_price":"1"},`, 101), ",")
	for body, want := range map[string]string{
		"":                                      "the body must be a JSON object",
		"[]":                                    "the body must be a JSON object",
		"{":                                     "the body must be one valid JSON object",
		`{"items":[],"items":[]}`:               "items: occurs twice",
		`{}`:                                    "items: is required",
		`{"items":null}`:                        "items: is required",
		`{"Items":[]}`:                          "items: is required",
		`{"items":{}}`:                          "items: must be an array of 1 to 100",
		`{"items":[]}`:                          "items: must be an array of 1 to 100",
		`{"items":[` + many + `]}`:              "items: must be an array of 1 to 100",
		`{"items":[1]}`:                         "items[0]: must be a JSON object",
		with("product_id", ""):                  "items[1].product_id: is required",
		with("product_id", `""`):                "items[1].product_id: must have 1 to 64",
		with("product_id", `"a\u0000b"`):        "items[1].product_id: must not contain control characters",
		with("product_id", `7`):                 "items[1].product_id: must be a string",
		with("quantity", ""):                    "items[1].quantity: must be an integer from 1 to 1000000",
		with("quantity", "0"):                   "items[1].quantity",
		with("quantity", "-1"):                  "items[1].quantity",
		with("quantity", "1.0"):                 "items[1].quantity",
		with("quantity", `"1"`):                 "items[1].quantity",
		with("quantity", "1000001"):             "items[1].quantity",
		with("quantity", "1e3"):                 "items[1].quantity",
		with("unit_price", `""`):                "items[1].unit_price: must be a decimal in a string",
		with("unit_price", "19.90"):             "items[1].unit_price: must be a decimal in a string",
		with("unit_price", `"-1"`):              "items[1].unit_price",
		with("unit_price", `"1e2"`):             "items[1].unit_price",
		with("unit_price", `"1.00001"`):         "items[1].unit_price",
		strings.Replace(two, `"PO-7"`, `""`, 1): "external_ref: must have 1 to 255",
		strings.Replace(two, `"PO-7"`, `7`, 1):  "external_ref: must be a string",
		strings.Replace(two, `PO-7`, `a\nb`, 1): "external_ref: must not contain control characters",
		strings.Replace(two, `PO-7`, strings.Repeat("ä", 256), 1): "external_ref: must have 1 to 255",
	} {
		got := w.send("POST", "/orders", body, key, "k1")
		got.want(t, 400, "validation_error")
		if !strings.Contains(got.problem.Detail, want) {
			t.Errorf("%.60q: %s, want %q", body, got.problem.Detail, want)
		}
	}
	if n := w.count("SELECT count(*) FROM onlyonce_records"); n != 0 {
		t.Errorf("%d records", n)
	}
	w.place("k1")
}

func TestCreate_ARequestThatIsNotJSONOrTooLargeIsRejected(t *testing.T) {
	w := newWorld(t)
	got := w.send("POST", "/orders", two, key, "k1", "Content-Type", "text/plain")
	got.want(t, 400, "validation_error")
	w.send("POST", "/orders", strings.Repeat(" ", maxBody+1), key, "k1").want(t, 413, "body_too_large")
	w.place("k1")
}

func TestCreate_ABodyWithAContentEncodingIsRejected(t *testing.T) {
	w := newWorld(t)
	for _, coding := range []string{"gzip", "br", "GZIP", "identity, gzip", "x"} {
		got := w.send("POST", "/orders", two, key, "k1", "Content-Encoding", coding)
		got.want(t, 415, "content_encoding_unsupported")
		if accepted := got.Header.Get("Accept-Encoding"); accepted != "identity" || !strings.Contains(got.problem.Detail, "Content-Encoding") {
			t.Errorf("%s: Accept-Encoding is %q in %s", coding, accepted, got.Body)
		}
	}
	if got := w.send("POST", "/orders", two, key, "k1", "Content-Encoding", "identity"); got.Status != 201 {
		t.Errorf("as it is: %d %s", got.Status, got.Body)
	}
	w.send("POST", "/orders", two, key, "k1", "Content-Encoding", "gzip").want(t, 415, "content_encoding_unsupported") // nor is it replayed
}

func TestCreate_AKeyIsRequiredAndWellFormed(t *testing.T) {
	w := newWorld(t)
	w.send("POST", "/orders", two).want(t, 400, "idempotency_key_missing")
	for _, k := range []string{"", "a b", strings.Repeat("k", 256), `"k`} {
		w.send("POST", "/orders", two, key, k).want(t, 400, "idempotency_key_invalid")
	}
	w.send("POST", "/orders", two, key, "a", key, "b").want(t, 400, "idempotency_key_invalid")
	same(t, w.place("k1"), w.send("POST", "/orders", two, key, `"k1"`))
	if n := w.orders(); n != 1 {
		t.Errorf("%d orders", n)
	}
}

func TestCreate_ProblemsAreRFC9457Documents(t *testing.T) {
	w := newWorld(t)
	got := w.send("POST", "/orders", two)
	if got.Header.Get("Content-Type") != "application/problem+json" {
		t.Error(got.Header)
	}
	var doc map[string]any
	if err := json.Unmarshal([]byte(got.Body), &doc); err != nil {
		t.Fatal(err)
	}
	for _, member := range []string{"type", "title", "status", "detail", "code", "retryable"} {
		if doc[member] == nil {
			t.Errorf("%s is missing from %s", member, got.Body)
		}
	}
}
