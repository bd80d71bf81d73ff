package h1

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
)

// smuggling holds values that would end a line early, if they were sent.
var smuggling = []string{"x\r\nX: y", "x\nX: y", "x\ry", "x\x00y", "x\r\n\r\nGET / HTTP/1.1"}

func TestRequest_AByteThatEndsALineIsNotSent(t *testing.T) {
	for _, bad := range smuggling {
		for part, build := range map[string]func() *Request{
			"method": func() *Request { return NewRequest(bad, "/") },
			"target": func() *Request { return NewRequest("POST", "/", bad) },
			"name":   func() *Request { q := NewRequest("POST", "/"); q.Field(bad, "v"); return q },
			"value":  func() *Request { q := NewRequest("POST", "/"); q.Fields("Name", []string{"v", bad}); return q },
			"value of a func": func() *Request {
				q := NewRequest("POST", "/")
				q.FieldFunc("Name", func(b []byte) []byte { return append(b, bad...) })
				return q
			},
		} {
			q := build()
			if sent, err := q.Bytes(); err != ErrUnwritable {
				t.Errorf("%s %q: %q is sent, %v", part, bad, sent, err)
			}
			q.Release()
		}
	}
}

// FuzzRequest parses sent requests with net/http: each is one request, with
// the method, the target, the field and the body that were given, and nothing else.
func FuzzRequest(f *testing.F) {
	f.Add("POST", "/v1/orders?a=b", "Name", "value", "body")
	f.Add("POST", "/", "Content-Type", "", "")
	f.Add("POST", "/", "", "value", "body")
	for _, bad := range smuggling {
		f.Add("POST"+bad, "/", "Name", "value", "body")
		f.Add("POST", "/"+bad, "Name", "value", "body")
		f.Add("POST", "/", "Name"+bad, "value", "body")
		f.Add("POST", "/", "Name", bad, "body")
	}
	f.Fuzz(func(t *testing.T, method, target, name, value, body string) {
		switch http.CanonicalHeaderKey(name) {
		case "Host", "Content-Length", "Transfer-Encoding", "Trailer", "Pragma": // net/http moves or uses them
			return
		}
		q := NewRequest(method, "/", target)
		defer q.Release()
		q.Field("Host", "upstream")
		q.Field(name, value)
		if err := q.Body(strings.NewReader(body), int64(len(body))); err != nil {
			t.Fatal(err)
		}
		sent, err := q.Bytes()
		if err != nil || len(body) > FirstPiece {
			return
		}
		in := bufio.NewReader(bytes.NewReader(sent))
		r, err := http.ReadRequest(in)
		if err != nil {
			if _, fine := http.NewRequest(method, "http://upstream/"+target, nil); fine != nil {
				return // a target that no URL has: the upstream rejects it, too
			}
			t.Fatalf("%q: %v", sent, err)
		}
		got, err := io.ReadAll(r.Body)
		if err != nil || string(got) != body || r.Method != method || r.RequestURI != "/"+target || len(r.Header) > 2 {
			t.Fatalf("%q: %v, %s %q %q %q", sent, err, r.Method, r.RequestURI, r.Header, got)
		}
		if got := r.Header.Values(name); len(got) != 1 || got[0] != strings.Trim(value, " \t") {
			t.Fatalf("%q: the field is %q", sent, got)
		}
		if rest, _ := io.ReadAll(in); len(rest) > 0 {
			t.Fatalf("%q is more than a request: %q", sent, rest)
		}
	})
}
