package logging

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
)

const validTraceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestWithRequest_LinesHaveTheIDsOfTheirRequest(t *testing.T) {
	long := strings.Repeat("r", longestRequestID)
	for _, c := range []struct {
		requestIDs, traceparents       []string
		wantRequestID, wantTraceparent any
	}{
		{},
		{[]string{"req-1/a:b"}, []string{validTraceparent}, "req-1/a:b", validTraceparent},
		{[]string{long}, nil, long, nil},
		{[]string{long + "r"}, []string{validTraceparent + "-00"}, nil, nil},
		{[]string{"a b"}, []string{strings.ToUpper(validTraceparent)}, nil, nil},
		{[]string{"a\x1b[2J"}, []string{strings.Replace(validTraceparent, "00-", "01-", 1)}, nil, nil},
		{[]string{"ä"}, []string{strings.Replace(validTraceparent, "4bf92f3577b34da6a3ce929d0e0e4736", strings.Repeat("0", 32), 1)}, nil, nil},
		{[]string{""}, []string{strings.Replace(validTraceparent, "00f067aa0ba902b7", strings.Repeat("0", 16), 1)}, nil, nil},
		{[]string{"a", "b"}, []string{validTraceparent, validTraceparent}, nil, nil},
		{[]string{"a"}, []string{"00-4bf92f3577b34da6a3ce929d0e0e473-600f067aa0ba902b7-01"}, "a", nil},
		{nil, []string{"00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01"}, nil, nil},
	} {
		r := httptest.NewRequest("POST", "/", nil)
		r.Header["X-Request-Id"], r.Header["Traceparent"] = c.requestIDs, c.traceparents
		var out strings.Builder
		log, err := Config{"json", "info", ""}.Logger(&out)
		if err != nil {
			t.Fatal(err)
		}
		log.With("a", 1).InfoContext(WithRequest(t.Context(), r), "said", "b", 2)
		var line map[string]any
		if err := json.Unmarshal([]byte(out.String()), &line); err != nil {
			t.Fatal(err)
		}
		if line["request_id"] != c.wantRequestID || line["traceparent"] != c.wantTraceparent || line["a"] != 1.0 || line["b"] != 2.0 {
			t.Errorf("%q, %q: %s", c.requestIDs, c.traceparents, out.String())
		}
	}
}
