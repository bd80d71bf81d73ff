package rejection

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/onlyonce-go/onlyonce/httponce"
)

var reused = httponce.Problem{
	Code: "idempotency_key_reused", Status: 422, Title: "The key was used", Detail: "Use a \"new\" one.\n",
	Type: "https://x/docs#idempotency_key_reused",
}

var running = httponce.Problem{
	Code: "request_in_progress", Status: 409, Title: "Running", Type: "about:blank", Retryable: true, RetryAfter: 1500 * time.Millisecond,
}

func write(w Writer, p httponce.Problem) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	w(rec, httptest.NewRequest("POST", "/", nil), p)
	return rec
}

func TestRejection_AStripeErrorIsOneOfStripes(t *testing.T) {
	got := write(Stripe, reused)
	want := `{"error":{"type":"idempotency_error","code":"idempotency_key_reused","message":"The key was used. Use a \"new\" one.\n","doc_url":"https://x/docs#idempotency_key_reused"}}` + "\n"
	if got.Code != 422 || got.Body.String() != want || got.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%d %v %s", got.Code, got.Header(), got.Body)
	}
	got = write(Stripe, running)
	if got.Code != 409 || got.Header().Get("Retry-After") != "2" || strings.Contains(got.Body.String(), "doc_url") {
		t.Errorf("%d %v %s", got.Code, got.Header(), got.Body)
	}
	for code, want := range map[string]string{"tenant_missing": "invalid_request_error", "store_unavailable": "api_error", "outcome_unknown": "idempotency_error"} {
		p := httponce.Problem{Code: code, Status: map[string]int{"store_unavailable": 503}[code]}
		if got := stripeType(p); got != want {
			t.Errorf("%s is of type %s", code, got)
		}
	}
}

func TestRejection_ATemplateWritesEveryTextAsJSON(t *testing.T) {
	w, err := Template(`{"code":{{.Code}},{{if .Detail}}"why":{{.Detail}},{{end}}{{with .RetryAfter}}"after":{{.}},{{else}}"never":true,{{end}}{{/* c */}}"s":{{.Status}},"r":{{$r := .Retryable}}{{$r}},"t":{{print .Title " " .Type}}}`, "application/vnd.x+json")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []httponce.Problem{reused, running} {
		got := write(w, p)
		var doc struct {
			Code, Why, T string
			After, S     int
			R, Never     bool
		}
		if err := json.Unmarshal(got.Body.Bytes(), &doc); err != nil {
			t.Fatalf("%v: %s", err, got.Body)
		}
		if doc.Code != p.Code || doc.Why != p.Detail || doc.S != p.Status || doc.R != p.Retryable || doc.Never == (p.RetryAfter > 0) || doc.T != p.Title+" "+p.Type {
			t.Errorf("%s of %+v", got.Body, p)
		}
		if got.Code != p.Status || got.Header().Get("Content-Type") != "application/vnd.x+json" {
			t.Errorf("%d %v", got.Code, got.Header())
		}
	}
}

func TestRejection_ATemplateThatDoesNotAlwaysWriteJSONIsRejected(t *testing.T) {
	for text, want := range map[string]string{
		``:                                "the output is not JSON",
		`{"a":"{{.Code}}"}`:               "leave out the quotes",
		`{"a":{{if .Detail}}1{{end}}}`:    "the output is not JSON",
		`{"a":{{.Key}}}`:                  "can't evaluate field Key",
		`{"a":{{.Err}}}`:                  "can't evaluate field Err",
		`{{`:                              "unclosed action",
		`{{range .Code}}{{end}}`:          "not supported",
		`{{define "x"}}{{end}}1`:          "one",
		`{{template "x"}}`:                "not supported",
		`{"a":{{printf "%99999d" 1}}}`:    "printf is not supported",
		`{"a":{{if (html .Code)}}{{end}}`: "html is not supported",
		`{"a":{{_json .Code}}}`:           "_json is not supported",
		`[` + strings.Repeat(`{{.Detail}},`, 5000) + `1]`: "short write",
	} {
		if _, err := Template(text, "application/json"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.50s: %v, want one that says %q", text, err, want)
		}
	}
}

func TestRejection_AProblemForWhichATemplateWritesNoJSONIsWrittenInItsOwnWay(t *testing.T) {
	w, err := Template(`{"a":{{.Code}}}{{if eq .Status 422}}{{end}}{{if eq .Title "Running"}}x{{end}}`, "text/x")
	if err != nil {
		t.Fatal(err)
	}
	if got := write(w, running); got.Code != 409 || got.Header().Get("Content-Type") != "application/problem+json" || !json.Valid(got.Body.Bytes()) {
		t.Errorf("%d %v %s", got.Code, got.Header(), got.Body)
	}
}

func FuzzATemplateWritesJSONOrIsRejected(f *testing.F) {
	f.Add(`{"code":{{.Code}}}`, "x")
	f.Add(`{{with .Title}}{{.}}{{else}}{{.Detail}}{{end}}`, "\"")
	f.Fuzz(func(t *testing.T, text, detail string) {
		w, err := Template(text, "application/json")
		if err != nil {
			return
		}
		if got := write(w, httponce.Problem{Code: "c", Status: 409, Title: "t", Detail: detail, Type: "about:blank"}); !json.Valid(got.Body.Bytes()) {
			t.Errorf("%q writes %q", text, got.Body)
		}
	})
}

// Whatever a problem says, in every format it is one JSON document with those
// texts, and nothing else of the response is changed by them.
func FuzzProblemsAreJSONInEveryFormat(f *testing.F) {
	f.Add("a", "title", "detail", "about:blank", "", 409, int64(time.Second))
	f.Add(`"`, `\`, "\u2028\"}\r\nSet-Cookie: a", "javascript:\"", "\xff{{.Code}}", 500, int64(-1))
	template, err := Template(`{"error":{"code":{{.Code}},"message":{{.Detail}},"title":{{if .Title}}{{.Title}}{{else}}null{{end}},"type":{{.Type}},"retry":{{.Retryable}},"after":{{.RetryAfter}}}}`, "application/json")
	if err != nil {
		f.Fatal(err)
	}
	own := func(w http.ResponseWriter, r *http.Request, p httponce.Problem) { p.ServeHTTP(w, r) }
	f.Fuzz(func(t *testing.T, code, title, detail, kind, key string, status int, after int64) {
		status = 400 + (status%200+200)%200
		p := httponce.Problem{Code: code, Status: status, Title: title, Detail: detail, Type: kind, Key: key, RetryAfter: time.Duration(after), Err: errors.New(key)}
		for name, write := range map[string]Writer{"own": own, "stripe": Stripe, "template": template} {
			w := httptest.NewRecorder()
			write(w, httptest.NewRequest(http.MethodPost, "/", nil), p)
			var doc map[string]any
			if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil || w.Code != status {
				t.Fatalf("%s: %d %q, %v", name, w.Code, w.Body, err)
			}
			if inner, ok := doc["error"].(map[string]any); ok {
				doc = inner
			}
			if doc["code"] != strings.ToValidUTF8(code, "\ufffd") && !strings.Contains(code, "\ufffd") && utf8.ValidString(code) {
				t.Errorf("%s: the code %q became %q", name, code, doc["code"])
			}
			if text, _ := doc["detail"].(string); name == "own" && utf8.ValidString(detail) && text != detail {
				t.Errorf("the detail %q became %q", detail, text)
			}
			for header := range w.Header() {
				if header != "Content-Type" && header != "Content-Length" && header != "Retry-After" {
					t.Errorf("%s: the header %s", name, header)
				}
			}
		}
	})
}
