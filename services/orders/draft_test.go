package orders

import (
	"strings"
	"testing"
)

func TestDraft_TheShortFormIsAnOrderOfOneItem(t *testing.T) {
	eachEngine(t, func(w *world) {
		first := w.send("POST", "/orders", `{"product_id":"prod-1","quantity":2}`, key, "k1")
		if first.Status != 201 || !strings.Contains(first.Body, `"total":"0.00"`) {
			w.t.Fatalf("%d %s", first.Status, first.Body)
		}
		for _, again := range []string{
			`{"quantity":2,"product_id":"prod-1","unit_price":null,"items":null,"external_ref":null,"note":1}`,
			`{"product_id":"prod-1","quantity":2,"unit_price":"0.00"}`,
			`{"items":[{"product_id":"prod-1","quantity":2}]}`,
			`{"items":[{"product_id":"prod-1","quantity":2,"unit_price":null}],"product_id":null,"quantity":null}`,
			`{"items":[{"product_id":"prod-1","quantity":2,"unit_price":"0.00"}]}`,
		} {
			same(w.t, first, w.send("POST", "/orders", again, key, "k1"))
		}
		read := w.send("GET", first.Header.Get("Location"), "")
		if !strings.Contains(read.Body, `"items":[{"product_id":"prod-1","quantity":2,"unit_price":"0.00"}]`) {
			w.t.Errorf("read back: %s", read.Body)
		}
	})
}

func TestDraft_TheShortFormWithAPriceIsTheLongOne(t *testing.T) {
	w := newWorld(t)
	first := w.place("k1")
	same(t, first, w.send("POST", "/orders", `{"external_ref":"PO-7","unit_price":"19.90","product_id":"prod-1","quantity":2}`, key, "k1"))
	for _, other := range []string{
		`{"external_ref":"PO-7","product_id":"prod-1","quantity":2}`,
		`{"external_ref":"PO-7","unit_price":"19.90","product_id":"prod-1","quantity":3}`,
		`{"external_ref":"PO-7","items":[{"product_id":"prod-1","quantity":2}]}`,
	} {
		w.send("POST", "/orders", other, key, "k1").want(t, 422, "idempotency_key_reused")
	}
}

func TestDraft_AnItemWithoutAPriceCostsNothing(t *testing.T) {
	w := newWorld(t)
	got := w.send("POST", "/orders", `{"items":[{"product_id":"a","quantity":3},{"product_id":"b","quantity":2,"unit_price":"1.5"}]}`, key, "k1")
	if got.Status != 201 || got.order.Total != "3.00" {
		t.Errorf("%d %s", got.Status, got.Body)
	}
}

func TestDraft_AnOrderHasOneFormAndNotBothOrNeither(t *testing.T) {
	w := newWorld(t)
	for body, want := range map[string]string{
		`{}`: "items: is required, or product_id and quantity for an order of one item",
		`{"items":null,"product_id":null,"quantity":null,"unit_price":null}`:        "items: is required, or product_id and quantity for an order of one item",
		`{"items":[{"product_id":"p","quantity":1}],"product_id":"p","quantity":1}`: "product_id: cannot be combined with items: an order has either",
		`{"items":[{"product_id":"p","quantity":1}],"quantity":1}`:                  "quantity: cannot be combined with items: an order has either",
		`{"items":[],"unit_price":"1.00"}`:                                          "unit_price: cannot be combined with items: an order has either",
		`{"product_id":"p"}`:                                                        "quantity: must be an integer from 1 to 1000000",
		`{"quantity":1}`:                                                            "product_id: is required",
		`{"unit_price":"1.00"}`:                                                     "product_id: is required",
		`{"product_id":"p","quantity":1,"unit_price":"-1"}`:                         "unit_price: must be a decimal in a string",
		`{"product_id":"p","quantity":1,"unit_price":1}`:                            "unit_price: must be a decimal in a string",
		`{"product_id":"p","quantity":1,"unit_price":""}`:                           "unit_price: must be a decimal in a string",
		`{"product_id":"p","quantity":1,"external_ref":7}`:                          "external_ref: must be a string",
	} {
		got := w.send("POST", "/orders", body, key, "k1")
		got.want(t, 400, "validation_error")
		if !strings.Contains(got.problem.Detail, want) {
			t.Errorf("%s: %s, want %q", body, got.problem.Detail, want)
		}
	}
	w.place("k1")
}
