package httponce_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// summaryOf returns the summary that a handler sees in the record of its request, which its
// claim has stored.
func summaryOf(t *testing.T, chosen []string, target, body string, header http.Header) string {
	t.Helper()
	store := memstore.New(memstore.Config{})
	var summary string
	h := httponce.Wrap(onlyonce.New(store, onlyonce.Config{}),
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			stored, err := store.Lookup(r.Context(), onlyonce.Current(r.Context()).Record().ID)
			if err != nil {
				t.Error(err)
			}
			summary = stored.Summary
		}), httponce.Config{Tenant: httponce.SingleTenant, Summary: chosen})
	r := httptest.NewRequest(http.MethodPost, target, strings.NewReader(body))
	for name, values := range header {
		r.Header[name] = values
	}
	r.Header.Set("Idempotency-Key", "k")
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != http.StatusOK {
		t.Fatalf("got %d %s", w.Code, w.Body)
	}
	return summary
}

func TestSummary_IsStoredWhenTheCommandIsClaimed(t *testing.T) {
	for _, c := range []struct {
		name   string
		chosen []string
		body   string
		want   string
	}{
		{"none", nil, `{"amount":5}`, ""},
		{"the path", []string{}, `{"amount":5}`, "POST /v1/payments/a%20b"},
		{
			"values",
			[]string{"/amount", "/customer/id", "/lines/1", "x-order"},
			`{"amount": 5.50, "customer": {"id": "c_17"}, "lines": [1, true]}`,
			`POST /v1/payments/a%20b X-Order="a" X-Order="b\n" /amount=5.5 /customer/id="c_17" /lines/1=true`,
		},
		{"no object", []string{"/customer", "/lines", "/missing"}, `{"customer":{"id":"c_17"},"lines":["secret"]}`, "POST /v1/payments/a%20b /customer={…} /lines=[…]"},
		{
			"no secret",
			[]string{"/card/number", "/apiToken", "/auth/0", "Authorization"},
			`{"card":{"number":"4111"},"apiToken":"t","auth":["x"]}`,
			"POST /v1/payments/a%20b Authorization=••• /apiToken=••• /auth/0=••• /card/number=•••",
		},
		{"not JSON", []string{"/amount"}, `amount=5`, "POST /v1/payments/a%20b (the body can't be read as JSON)"},
		{"two readings", []string{"/amount"}, `{"amount":5,"amount":6}`, "POST /v1/payments/a%20b (the body can't be read as JSON)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			header := http.Header{"X-Order": {"a", "b\n"}, "Authorization": {"Bearer secret"}}
			if got := summaryOf(t, c.chosen, "/v1/payments/a%20b?token=secret", c.body, header); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestSummary_IsShort(t *testing.T) {
	chosen := []string{"/a", "/b", "/c", "/d", "/e", "/f", "/g", "/h"}
	long := strings.Repeat("ä", 150)
	body := "{}"
	for _, pointer := range chosen {
		body = strings.Replace(body, "}", `,"`+pointer[1:]+`":"`+long+`"}`, 1)
	}
	body = strings.Replace(body, ",", "", 1)
	got := summaryOf(t, chosen, "/"+strings.Repeat("p", 3000), body, nil)
	if len(got) > onlyonce.LongestSummary || !utf8.ValidString(got) || !strings.HasSuffix(got, "…") {
		t.Errorf("got %d bytes: %s", len(got), got)
	}
	if !strings.Contains(got, `/a="ä`) {
		t.Errorf("a long path left no room for a value: %s", got)
	}
}

func TestSummary_ALongNumberKeepsItsExponent(t *testing.T) {
	digits := strings.Repeat("1234567890", 30)
	for number, want := range map[string]string{
		"-1." + digits + "e500":     "…e+500",
		"1." + digits + "1e-123456": "…e-123456",
		"\"1." + digits + "e500\"":  "…", // a text
	} {
		got := summaryOf(t, []string{"/amount"}, "/p", `{"amount":`+number+`}`, nil)
		if !strings.HasSuffix(got, want) || len(got) > len("POST /p /amount=")+200+len("…") {
			t.Errorf("got %s, want an end of %s", got, want)
		}
	}
}

func TestSummary_AMistakePanics(t *testing.T) {
	for _, chosen := range []string{"", "/a~2"} {
		func() {
			defer func() {
				if p := recover(); p == nil || !strings.Contains(p.(string), "Config.Summary") {
					t.Errorf("%q: got %v, want a panic that names Config.Summary", chosen, p)
				}
			}()
			httponce.Wrap(onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{}),
				http.NotFoundHandler(), httponce.Config{Tenant: httponce.SingleTenant, Summary: []string{chosen}})
		}()
	}
}
