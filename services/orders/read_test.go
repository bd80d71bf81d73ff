package orders

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/services/publicid"
)

func TestRead_AnIdDecidesWhatAReadReturns(t *testing.T) {
	w := newWorld(t)
	w.place("k1")
	code := strings.TrimPrefix(orderIDs.Format(publicid.New()), "ord_")
	for path, want := range map[string]struct {
		status int
		code   string
	}{
		"/orders/ord_" + code:                  {404, "order_not_found"},
		"/orders/shp_" + code:                  {400, "validation_error"},
		"/orders/" + code:                      {400, "validation_error"},
		"/orders/ord_" + code[1:]:              {400, "validation_error"},
		"/orders/ord_" + strings.ToLower(code): {400, "validation_error"},
		"/orders/ord_" + code[:25] + "U":       {400, "validation_error"},
		"/orders/1":                            {400, "validation_error"},
	} {
		w.send("GET", path, "").want(t, want.status, want.code)
	}
}

// pages reads the tenant's list to its end.
func (w *world) pages(query string, header ...string) (pages [][]string) {
	w.t.Helper()
	for cursor := ""; ; {
		got := w.send("GET", "/orders?"+query+cursor, "", header...)
		var body struct {
			Items []order
			Next  *string `json:"next_cursor"`
		}
		if err := json.Unmarshal([]byte(got.Body), &body); err != nil || got.Status != 200 {
			w.t.Fatalf("%d %s", got.Status, got.Body)
		}
		var ids []string
		for _, o := range body.Items {
			ids = append(ids, o.ID)
		}
		pages = append(pages, ids)
		if body.Next == nil {
			return pages
		}
		cursor = "&cursor=" + url.QueryEscape(*body.Next)
	}
}

func TestRead_AListIsPagedTheNewestFirst(t *testing.T) {
	eachEngine(t, func(w *world) {
		var made []string
		for n := range 5 {
			made = append(made, w.place(fmt.Sprint("k", n), "X-Tenant-ID", "acme").order.ID)
			w.place(fmt.Sprint("k", n), "X-Tenant-ID", "globex")
		}
		slices.Sort(made)
		slices.Reverse(made)
		pages := w.pages("limit=2", "X-Tenant-ID", "acme")
		if want := [][]string{made[:2], made[2:4], made[4:]}; fmt.Sprint(pages) != fmt.Sprint(want) {
			w.t.Errorf("%v, want %v", pages, want)
		}
	})
}

func TestRead_AListStaysAsItIsForItsReaderWhileOrdersAreMade(t *testing.T) {
	w := newWorld(t)
	for n := range 4 {
		w.place(fmt.Sprint("k", n))
	}
	before := slices.Concat(w.pages("limit=2")...)
	first := w.send("GET", "/orders?limit=2", "")
	now := publicid.New().Time()
	eventually(t, "it is later", func() bool { return publicid.New().Time().After(now) }) // by what an id counts in
	w.place("later")
	var body struct {
		Next string `json:"next_cursor"`
	}
	if err := json.Unmarshal([]byte(first.Body), &body); err != nil {
		t.Fatal(err)
	}
	rest := slices.Concat(w.pages("limit=2&cursor=" + body.Next)...)
	if fmt.Sprint(rest) != fmt.Sprint(before[2:]) {
		t.Errorf("%v, want %v", rest, before[2:])
	}
}

func TestRead_APageHas50OrdersUnlessTheCallerSaysOtherwise(t *testing.T) {
	w := newWorld(t)
	for n := range 51 {
		w.place(fmt.Sprint("k", n))
	}
	if pages := w.pages(""); len(pages) != 2 || len(pages[0]) != 50 {
		t.Errorf("%d pages, the first of %d", len(pages), len(pages[0]))
	}
	if pages := w.pages("limit=200"); len(pages) != 1 {
		t.Errorf("%d pages", len(pages))
	}
}

func TestRead_ACursorIsOpaqueAndItsTenants(t *testing.T) {
	w := newWorld(t)
	o := publicid.New()
	c := cursor("acme", o)
	if back, err := parseCursor("acme", c); err != nil || back != o {
		t.Errorf("%v, %v", back, err)
	}
	if got := w.send("GET", "/orders?cursor="+c, "", "X-Tenant-ID", "acme"); got.Status != 200 {
		t.Error(got.Body)
	}
	for _, other := range []string{c[:len(c)-1], c + "A", "x" + c[1:], orderIDs.Format(o), "%00", c[:len(c)-1] + "="} {
		w.send("GET", "/orders?cursor="+other, "", "X-Tenant-ID", "acme").want(t, 400, "validation_error")
	}
	w.send("GET", "/orders?cursor="+c, "", "X-Tenant-ID", "globex").want(t, 400, "validation_error")
}

func TestRead_AListWithInvalidParametersIsRejected(t *testing.T) {
	w := newWorld(t)
	for _, query := range []string{"limit=0", "limit=201", "limit=-1", "limit=x", "limit=1.0", "limit=%zz"} {
		w.send("GET", "/orders?"+query, "").want(t, 400, "validation_error")
	}
}

func TestRead_OtherMethodsAndPathsAreRejected(t *testing.T) {
	w := newWorld(t)
	w.send("DELETE", "/orders", "").want(t, 405, "method_not_allowed")
	got := w.send("PATCH", "/orders/ord_1", "")
	got.want(t, 405, "method_not_allowed")
	if allow := got.Header.Get("Allow"); allow != "GET, HEAD" {
		t.Errorf("Allow: %s", allow)
	}
	for _, path := range []string{"/", "/orders/", "/orders/a/b", "//orders", "/orders/../orders"} {
		w.send("GET", path, "").want(t, 404, "not_found")
	}
	w.send("POST", "/orders", two, key, "k1", "Origin", "https://example.org", "Sec-Fetch-Site", "cross-site").want(t, 403, "cross_origin")
}
