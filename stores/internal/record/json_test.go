package record

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"testing"

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
