package items

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/services/internal/apitest"
)

func TestItem_ACreateReturnsTheItem(t *testing.T) {
	w := newWorld(t, Config{})
	before := time.Now().Truncate(time.Second)
	got := w.post(`{"sku":"MUG-1","title":"Mug","status":"active"}`)
	i := got.item
	if i.ID < 1 || i.CreatedAt.Before(before) || i.CreatedAt.After(time.Now()) {
		t.Errorf("got %s", got.Body)
	}
	want := fmt.Sprintf(`{"id":%d,"sku":"MUG-1","title":"Mug","status":"active","brand":null,"category":null,"created_at":"%s"}`,
		i.ID, i.CreatedAt.Format("2006-01-02T15:04:05Z"))
	if got.Status != 201 || got.Body != want {
		t.Errorf("got  %d %s\nwant %s", got.Status, got.Body, want)
	}
	if back := w.send("GET", fmt.Sprint(base, "/", i.ID), ""); back.Status != 200 || back.Body != got.Body {
		t.Errorf("read back: %d %s", back.Status, back.Body)
	}
	next := w.post(`{"sku":"x","title":"y","status":"inactive","brand":"b","category":"c"}`)
	if next.item.ID <= i.ID || *next.item.Brand != "b" || *next.item.Category != "c" {
		t.Errorf("got %s", next.Body)
	}
	if null := w.post(`{"sku":"x","title":"y","status":"draft","brand":null,"category":null}`); null.item.Brand != nil || null.Status != 201 {
		t.Errorf("got %s", null.Body)
	}
}

func TestItem_AnIdIsNeverReused(t *testing.T) {
	w := newWorld(t, Config{})
	first := w.post(mug)
	w.exec("DELETE FROM items_items")
	if second := w.post(mug); second.item.ID <= first.item.ID {
		t.Errorf("%d after %d", second.item.ID, first.item.ID)
	}
}

func TestItem_LengthsAreCountedInCharacters(t *testing.T) {
	w := newWorld(t, Config{})
	body := func(sku, title string) string {
		text, _ := json.Marshal(map[string]string{"sku": sku, "title": title, "status": "active"})
		return string(text)
	}
	longest := body(strings.Repeat("ß", 64), strings.Repeat("🫖", 200))
	if got := w.post(longest); got.Status != 201 || got.item.Title != strings.Repeat("🫖", 200) {
		t.Error(got.Body)
	}
	for field, text := range map[string]string{"sku": body(strings.Repeat("s", 65), "t"), "title": body("s", strings.Repeat("t", 201))} {
		wantInvalid(t, w.post(text), field)
	}
	for field, text := range map[string]string{"sku": body("", "t"), "title": body("s", "")} {
		wantInvalid(t, w.post(text), field)
	}
}

func wantInvalid(t *testing.T, got reply, field string) {
	t.Helper()
	got.want(t, 400, "VALIDATION_ERROR")
	if !strings.HasPrefix(got.problem.Detail, field) || got.problem.Key != "" {
		t.Errorf("the detail %q does not name %q", got.problem.Detail, field)
	}
}

func TestItem_ABodyThatIsNotValidIsRejectedByItsFieldAndLeavesTheKeyUnused(t *testing.T) {
	w := newWorld(t, Config{})
	for body, field := range map[string]string{
		`{"title":"t","status":"active"}`:                            "sku: ",
		`{"sku":null,"title":"t","status":"active"}`:                 "sku: ",
		`{"sku":1,"title":"t","status":"active"}`:                    "sku: ",
		`{"sku":"s","status":"active"}`:                              "title: ",
		`{"sku":"s","title":["t"],"status":"active"}`:                "title: ",
		`{"sku":"s","title":"t"}`:                                    "status: ",
		`{"sku":"s","title":"t","status":"Active"}`:                  "status: ",
		`{"sku":"s","title":"t","status":""}`:                        "status: ",
		`{"sku":"s","title":"t","status":null}`:                      "status: ",
		`{"sku":"s","title":"t","status":"active","brand":7}`:        "brand: ",
		`{"sku":"s","title":"t","status":"active","category":{}}`:    "category: ",
		`{"sku":"s","title":"t","status":"active","catgory":"c"}`:    "catgory: ",
		`{"SKU":"s","title":"t","status":"active"}`:                  "SKU: ",
		`{"sku":"s","sku":"s","title":"t","status":"active"}`:        "sku: ",
		`{"sku":"s","title":"t","status":"active","` + long + `":1}`: long[:64] + "…: ",
		``:             "the body",
		`null`:         "the body",
		`[]`:           "the body",
		`"x"`:          "the body",
		`{`:            "the body",
		mug + `{}`:     "the body",
		"\ufeff" + mug: "the body",
		"{\"sku\":\"\xff\",\"title\":\"t\",\"status\":\"active\"}": "the body",
		`{"sku":"\ud800","title":"t","status":"active"}`:           "the body",
		strings.Repeat("[", 10000):                                 "the body",
	} {
		wantInvalid(t, w.post(body, key, "k1"), field)
		wantInvalid(t, w.post(body), field)
	}
	if n := w.count("onlyonce_records"); n != 0 {
		t.Errorf("%d records", n)
	}
	if got := w.post(mug, key, "k1"); got.Status != 201 {
		t.Error(got.Body)
	}
}

var long = strings.Repeat("n", 100)

func TestItem_AnotherContentTypeIsRejected(t *testing.T) {
	w := newWorld(t, Config{})
	for _, media := range []string{"", "text/plain", "text/json", "application/x-www-form-urlencoded", "application/jsonx", "application/json; charset=latin1", "application/json; x"} {
		wantInvalid(t, w.postAs(media), "Content-Type: ")
	}
	wantInvalid(t, w.post(mug, "Content-Type", "application/json"), "Content-Type: ") // twice
	for _, media := range []string{"application/json", "application/json; charset=utf-8", "Application/JSON;charset=UTF-8"} {
		if got := w.postAs(media); got.Status != 201 {
			t.Errorf("%q: %d %s", media, got.Status, got.Body)
		}
	}
}

func TestItem_ABodyWithAContentEncodingIsRejected(t *testing.T) {
	w := newWorld(t, Config{})
	for _, coding := range []string{"gzip", "br", "GZIP", "identity, gzip", "x"} {
		for _, body := range []string{mug, "", "\x1f\x8b"} {
			got := w.post(body, "Content-Encoding", coding, key, "k1")
			got.want(t, 415, "CONTENT_ENCODING_UNSUPPORTED")
			if accepted := got.Header.Get("Accept-Encoding"); accepted != "identity" || !strings.Contains(got.problem.Detail, "Content-Encoding") {
				t.Errorf("%s: Accept-Encoding is %q in %s", coding, accepted, got.Body)
			}
		}
	}
	w.post(mug, "Content-Encoding", "gzip").want(t, 415, "CONTENT_ENCODING_UNSUPPORTED")
	if got := w.post(mug, "Content-Encoding", "Identity", key, "k1"); got.Status != 201 {
		t.Errorf("as it is: %d %s", got.Status, got.Body)
	}
	w.post(mug, "Content-Encoding", "gzip", key, "k1").want(t, 415, "CONTENT_ENCODING_UNSUPPORTED") // nor is it replayed
}

func TestItem_ABodyThatIsTooLargeIsRejected(t *testing.T) {
	w := newWorld(t, Config{})
	large := mug + strings.Repeat(" ", maxBody)
	w.post(large).want(t, 413, "BODY_TOO_LARGE")
	w.post(large, key, "k1").want(t, 413, "BODY_TOO_LARGE")
	if w.count("items_items") != 0 || w.count("onlyonce_records") != 0 {
		t.Error("something ran")
	}
}

func TestItem_AnUnknownItemIsNotFound(t *testing.T) {
	w := newWorld(t, Config{})
	w.post(mug)
	for _, id := range []string{"2", "0", "-1", "01", "+1", "1.0", "x", "99999999999999999999", "1%2f"} {
		w.send("GET", base+"/"+id, "").want(t, 404, "NOT_FOUND")
	}
}

func TestItem_AListIsPaged(t *testing.T) {
	w := newWorld(t, Config{})
	if got := w.send("GET", base, ""); got.Body != `{"items":[],"next_cursor":null}` {
		t.Error(got.Body)
	}
	var made, seen []int64
	for range 5 {
		made = append(made, w.post(mug).item.ID)
	}
	cursor := ""
	for _, size := range []int{2, 2, 1} {
		ids, next := w.list("?limit=2&cursor=" + cursor)
		if len(ids) != size {
			t.Errorf("a page of %d, want %d", len(ids), size)
		}
		seen, cursor = append(seen, ids...), next
	}
	if !slices.Equal(seen, made) || cursor != "" {
		t.Errorf("seen %v, made %v, then %q", seen, made, cursor)
	}
	if ids, next := w.list("?limit=5"); len(ids) != 5 || next != "" {
		t.Errorf("a page that is just full: %v, then %q", ids, next)
	}
	for range 46 {
		w.exec("INSERT INTO items_items (sku, title, status, created_at) VALUES ('s', 't', 'draft', 0)")
	}
	if ids, next := w.list(""); len(ids) != 50 || next == "" {
		t.Errorf("without a limit: %d, then %q", len(ids), next)
	}
}

func (w *world) list(query string) (ids []int64, next string) {
	w.t.Helper()
	got := w.send("GET", base+query, "")
	var page struct {
		Items []item
		Next  *string `json:"next_cursor"`
	}
	if err := json.Unmarshal([]byte(got.Body), &page); err != nil || got.Status != 200 {
		w.t.Fatalf("list responded with %d %s", got.Status, got.Body)
	}
	for _, i := range page.Items {
		ids = append(ids, i.ID)
	}
	if page.Next != nil {
		next = *page.Next
	}
	return ids, next
}

func TestItem_AListWithInvalidParametersIsRejected(t *testing.T) {
	w := newWorld(t, Config{})
	for query, field := range map[string]string{
		"limit=0": "limit: ", "limit=201": "limit: ", "limit=-1": "limit: ", "limit=x": "limit: ", "limit=1e1": "limit: ",
		"cursor=x": "cursor: ", "cursor=-1": "cursor: ", "cursor=0": "cursor: ", "limit=%zz": "query: ",
	} {
		wantInvalid(t, w.send("GET", base+"?"+query, ""), field)
	}
	w.list("?limit=200")
	w.list("?limit=&cursor=")
}

func TestItem_ATruncatedBodyIsTheClientsFault(t *testing.T) {
	w := newWorld(t, Config{})
	for _, how := range apitest.Breaks {
		for _, header := range []string{"", key + ": k1\r\n"} {
			resp, body := apitest.PostPart(t, w.api, base, how, header)
			wantInvalid(t, newReply(t, resp.StatusCode, resp.Header, body), "the body is incomplete")
		}
	}
	if w.count("items_items") != 0 || w.count("onlyonce_records") != 0 {
		t.Error("something ran")
	}
}

func TestItem_TextThatNobodyCouldReadIsRejectedByItsField(t *testing.T) {
	w := newWorld(t, Config{})
	body := func(field, text string) string {
		m := map[string]string{"sku": "s", "title": "t", "status": "active", "brand": "b", "category": "c"}
		m[field] = text
		doc, _ := json.Marshal(m)
		return string(doc)
	}
	for _, field := range []string{"sku", "title", "brand", "category"} {
		for _, blank := range []string{"", " ", "\u00a0\u3000 ", "\u200b", "\u2028"} {
			wantInvalid(t, w.post(body(field, blank), key, "k1"), field+": must ")
		}
		for _, control := range []string{"a\x00", "\x00", "a\nb", "\ta", "a\x1b[31m", "a\x7f", "a\u0085b"} {
			wantInvalid(t, w.post(body(field, control)), field+": must not contain control characters")
		}
		for _, fine := range []string{"é", "a b", " a ", "👩‍👧", "٣", "-", "a\u00adb"} {
			if got := w.post(body(field, fine)); got.Status != 201 || !strings.Contains(got.Body, fine) {
				t.Errorf("%s %q: %d %s", field, fine, got.Status, got.Body)
			}
		}
	}
	if n := w.count("onlyonce_records"); n != 0 {
		t.Errorf("%d records", n)
	}
}
