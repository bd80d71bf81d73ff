package record

import (
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

func TestJSON_AHeaderIsDecodedAsItWasEncoded(t *testing.T) {
	for _, h := range []map[string][]string{
		{},
		{"Content-Type": {"application/json"}},
		{"A": {}, "B": {""}, "C": {"1", "2", "1"}, "": {"no name"}},
		{"Etag": {`"quoted"`}, "Path": {`c:\dir`}, "Tab": {"a\tb"}, "Umlaut": {"ä"}, "Bytes": {"\xff\x00"}},
		{"Escaped": {"\x00base64:x"}},
		http.Header{"Location": {"/v1/orders/ord_1"}, "X-Json": {`{"a":["b"]}`, "a],[b", "},{"}},
	} {
		text, _ := EncodeHeader(&onlyonce.Result{Header: h}).(string)
		var r onlyonce.Result
		err := DecodeHeader(text, &r)
		got := r.Header
		if err != nil || !maps.EqualFunc(h, got, slices.Equal) {
			t.Errorf("%q became %q by %s, %v", h, got, text, err)
		}
	}
}

func TestJSON_TheKeepOfAResultIsFoundAtTheBeginningAndDoesNotMixWithHeaders(t *testing.T) {
	for _, h := range []map[string][]string{
		nil,
		{"Content-Type": {"application/json"}},
		{"!": {"before it"}, "": {"no name"}, "Umlaut": {"ä"}},
		{":keep": {"1"}},
		{":keep": {"1"}, "!": {}, ":traceparent": {"a", "b"}},
	} {
		for _, keep := range []time.Duration{0, time.Nanosecond, time.Hour, math.MaxInt64} {
			for _, trace := range []string{"", "00-1-2-03"} {
				text, _ := EncodeHeader(&onlyonce.Result{Header: h, Keep: keep, Traceparent: trace}).(string)
				if strings.HasPrefix(text, keepPrefix) != (keep > 0) {
					t.Errorf("with the Keep %v, it is %s", keep, text)
				}
				var r onlyonce.Result
				err := DecodeHeader(text, &r)
				want := keep.Truncate(time.Microsecond)
				if keep == time.Nanosecond {
					want = briefest
				}
				if trace != "" && len(h[":traceparent"]) > 0 { // the traceparent comes first
					h = maps.Clone(h)
					delete(h, ":traceparent")
				}
				if err != nil || r.Keep != want || r.Traceparent != trace || !maps.EqualFunc(h, r.Header, slices.Equal) {
					t.Errorf("%q with the Keep %v and %q became %q, %v and %q by %s, %v", h, keep, trace, r.Header, r.Keep, r.Traceparent, text, err)
				}
			}
		}
	}
	for _, text := range []string{`{":keep":["`, `{":keep":["5`, `{":keep":["5"`, `{":keep":["-5"]}`, `{":keep":["0"]}`, `{":keep":["x"],"A":["b"]}`, `{":keep":["99999999999999999999"]}`} {
		if err := DecodeHeader(text, new(onlyonce.Result)); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
}

func FuzzDecodePlain(f *testing.F) {
	for _, text := range []string{`{}`, `{"A":["b"]}`, `{"A":[],"B":["c","d"]}`, `{"A":["b"],}`, `{"A":["b"]`, `{,}`, `{"A":[,]}`, `{"A":["b"]}}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, ok := decodePlain(text)
		if !ok {
			return
		}
		var want map[string][]string
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatalf("%q is no JSON, but became %q", text, got)
		}
		if !maps.EqualFunc(want, got, slices.Equal) {
			t.Fatalf("%q became %q, want %q", text, got, want)
		}
	})
}
