package conform

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"
)

func TestResponse_InterimResponsesAreSkipped(t *testing.T) {
	a, err := readResponse(strings.NewReader("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\nx-a:  b\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"), "POST")
	if err != nil || a.status != 201 || string(a.body) != "abcde" || string(a.head) != "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\nx-a:  b" {
		t.Errorf("%+v, %v, head %q", a, err, a.head)
	}
}

func TestResponse_ATruncatedResponseIsNoResponse(t *testing.T) {
	for _, text := range []string{
		"", "HTTP/1.1 200 OK\r\n", "no response\r\n\r\n",
		"HTTP/1.1 100 Continue\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab",
		"HTTP/1.1 200 OK\r\n\r\n" + strings.Repeat("x", maxResponse+1),
	} {
		if a, err := readResponse(strings.NewReader(text), "POST"); err == nil {
			t.Errorf("%.60q is %d with %d bytes", text, a.status, len(a.body))
		}
	}
}

func TestResponse_ReplaysAreRecognizedByTheirHeaders(t *testing.T) {
	for line, want := range map[string]string{
		"Idempotency-Replayed: true":       "Idempotency-Replayed",
		"Idempotent-Replayed: true":        "Idempotent-Replayed",
		"x-idempotency-replay: 1":          "X-Idempotency-Replay",
		"Idempotency-Replay: omitted":      "Idempotency-Replay",
		"Idempotency-Status: Cached":       "Idempotency-Status",
		"X-Idempotent-Cache: hit":          "X-Idempotent-Cache",
		"Idempotency-Replayed: false":      "",
		"Idempotency-Replayed: ?0":         "",
		"Idempotency-Replayed: ?1":         "Idempotency-Replayed",
		"Idempotency-Replay: original":     "",
		"Replay-Nonce: oFvnlFP1wIhRlYS2":   "",
		"Idempotency-Replayed:":            "",
		"Idempotency-Expires: Sat, 1 Jan":  "",
		"Idempotency-Key: abc":             "",
		"X-Cache: hit":                     "",
		"Idempotency-Status: new":          "",
		"X-Idempotent-Cache: miss, stored": "",
	} {
		name, value, _ := strings.Cut(line, ":")
		a := response{header: http.Header{http.CanonicalHeaderKey(name): {strings.TrimSpace(value)}}}
		if got := a.replayHeader(); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

func TestResponse_ResponsesAreComparedByMeaning(t *testing.T) {
	a := response{status: 201, body: []byte("x"), header: http.Header{"Location": {"/1"}, "Date": {"now"}, "X-Request-Id": {"1"}}}
	b := response{status: 200, body: []byte("y"), header: http.Header{"Location": {"/2"}, "Date": {"then"}, "Etag": {"e"}}}
	if got := differences(a, b); !slices.Equal(got, []string{"Etag", "Location", "the body", "the status"}) {
		t.Errorf("%q", got)
	}
	if got := differences(a, a); len(got) > 0 {
		t.Errorf("%q", got)
	}
}

func TestResponse_RejectionsLinkInAHeaderOrByTheirType(t *testing.T) {
	for _, c := range []struct{ link, body, want string }{
		{`</docs>; rel="describedby"`, "", "/docs"},
		{`<https://a.example/x>; type="text/html"; rel=describedby`, "", "https://a.example/x"},
		{`<>; rel="describedby"`, "{}", ""},
		{`</next>; rel="next", </docs>; rel="help describedby"`, "", "/docs"},
		{`</next>; rel="next"`, "", ""},
		{`</x>; rel="describedbyothers"`, "", ""},
		{"", `{"type":"https://a.example/key"}`, "https://a.example/key"},
		{"", `{"type":"about:blank"}`, ""},
		{"", `{"type":7}`, ""},
		{"", `not JSON`, ""},
	} {
		a := response{header: http.Header{}, body: []byte(c.body)}
		if c.link != "" {
			a.header.Set("Link", c.link)
		}
		if got := a.documentation(); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.link, c.body, got, c.want)
		}
	}
}

func TestResponse_AProblemDocumentIsInspected(t *testing.T) {
	for body, want := range map[string]string{
		`{"type":"about:blank","title":"Conflict","status":409}`: "",
		`{"title":"Conflict"}`:         "",
		`[]`:                           "not a JSON object",
		`null`:                         "not a JSON object",
		`{"title":"x","status":"409"}`: "its status is 409",
		`{"title":"x","status":400}`:   "its status is 400",
		`{"type":1}`:                   "its type is not a string",
		`{"type":"http://[x"}`:         "its type is not a URI",
		`{"detail":"x"}`:               "neither",
		`{"title":"x","status":409,"detail":{"why":""}}`: "its detail",
	} {
		got := invalidProblem(response{status: 409, body: []byte(body)})
		if got != want && (want == "" || !strings.Contains(got, want)) {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
}

func TestResponse_NoCredentialIsShown(t *testing.T) {
	c := newRedactor(
		http.Header{"Authorization": {"Bearer s3cret-of-a"}, "X-Api": {"k1"}, "Content-Type": {"application/json"}},
		http.Header{"Authorization": {"Basic s3cret-of-b"}},
	)
	got := string(c.redactMessage(
		[]byte("POST /a?token=s3cret-of-a HTTP/1.1\r\nAuthorization: Bearer s3cret-of-a\r\nX-Api: k1\r\nContent-Type: application/json\r\n\r\n"),
		[]byte(`{"you":"s3cret-of-b"}`+strings.Repeat(" ", maxBody-30)+"s3cret-of-b")))
	if strings.Contains(got, "s3cret") || strings.Contains(got, "k1") || !strings.Contains(got, "application/json") {
		t.Error(got)
	}
	got = string(c.redactMessage([]byte("HTTP/1.1 200 OK\r\nSet-Cookie: session=abc; HttpOnly\r\nX-Auth-Token: abc\r\nLocation: /1\r\n"), nil))
	if strings.Contains(got, "abc") || !strings.Contains(got, "session=[redacted]") || !strings.Contains(got, "Location: /1") {
		t.Error(got)
	}
}

// Whatever a server sends, it is read without a panic.
func FuzzReadResponse(f *testing.F) {
	f.Add([]byte("HTTP/1.1 409 Conflict\r\nLink: </d>; rel=describedby\r\nContent-Type: application/problem+json\r\n\r\n{}"))
	f.Add([]byte("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 200\r\nSet-Cookie: a=b\r\n\r\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		a, err := readResponse(bytes.NewReader(raw), "POST")
		if err != nil {
			return
		}
		a.documentation()
		a.replayHeader()
		cookies(a)
		invalidProblem(a)
		if len(differences(a, a)) > 0 {
			t.Error("it differs from itself")
		}
		newRedactor().redactMessage(a.head, a.body)
	})
}
