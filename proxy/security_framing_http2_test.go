package proxy_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/proxy"
)

// http2Frame is a frame of RFC 9113, section 4.1.
func http2Frame(kind, flags byte, stream uint32, payload []byte) []byte {
	b := []byte{0, byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// http2Fields are names and values by turns as literals of RFC 7541, each shorter
// than 127 bytes.
func http2Fields(fields ...string) (b []byte) {
	for i, s := range fields {
		if i%2 == 0 {
			b = append(b, 0x10) // never indexed, with a new name
		}
		b = append(append(b, byte(len(s))), s...)
	}
	return b
}

// The kinds of frames and their flags: RFC 9113, section 6.
const (
	http2Data, http2Headers, http2Reset, http2Settings = 0, 1, 3, 4
	http2EndStream, http2EndHeaders                    = 1, 4
)

// sendHTTP2 sends one request by HTTP/2 in clear text, with a DATA frame if body is
// not empty. It returns the body of the response, or "reset".
func sendHTTP2(t *testing.T, address, body string, fields ...string) string {
	t.Helper()
	if body == "" {
		return sendHTTP2Frames(t, address, http2Frame(http2Headers, http2EndHeaders|http2EndStream, 1, http2Fields(fields...)))
	}
	return sendHTTP2Frames(t, address, append(
		http2Frame(http2Headers, http2EndHeaders, 1, http2Fields(fields...)), http2Frame(http2Data, http2EndStream, 1, []byte(body))...,
	))
}

// sendHTTP2Frames sends frames of the first stream of a connection, and returns the
// body of the response, or "reset".
func sendHTTP2Frames(t *testing.T, address string, frames []byte) string {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	request := append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), http2Frame(http2Settings, 0, 0, nil)...)
	if _, err := c.Write(append(request, frames...)); err != nil {
		t.Fatal(err)
	}
	var response []byte
	for {
		var head [9]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			t.Fatal(err)
		}
		payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(c, payload); err != nil {
			t.Fatal(err)
		}
		kind, flags, stream := head[3], head[4], binary.BigEndian.Uint32(head[5:])
		switch {
		case stream != 1:
			continue
		case kind == http2Reset:
			return "reset"
		case kind == http2Data:
			response = append(response, payload...)
		}
		if (kind == http2Data || kind == http2Headers) && flags&http2EndStream != 0 {
			return string(response)
		}
	}
}

// net/http lets a request through whose announced body never comes, and fields as
// they are. RFC 9113, sections 8.1.1 and 8.2.1, calls both malformed.
func TestSecurity_MalformedRequestsByHTTP2AreRejected(t *testing.T) {
	var runs atomic.Int32
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(append([]byte("ran "), body...))
	})
	p := proxy.New([]proxy.Route{{Pattern: "/", Upstream: up, Guard: newGuard(onlyonce.Config{}), Idempotency: single}}, proxy.Config{})
	address := serve(t, p)
	send := func(body string, more ...string) string {
		fields := append([]string{":method", "POST", ":scheme", "http", ":authority", "a.example", ":path", "/v1/orders"}, more...)
		return sendHTTP2(t, address, body, fields...)
	}
	for name, fields := range map[string][]string{
		"announced and missing":       {"content-length", "7"},
		"announced twice":             {"content-length", "0", "content-length", "0"},
		"an odd length":               {"content-length", "+0"},
		"no length":                   {"content-length", ""},
		"a blank before a value":      {"x-account", " a"},
		"a blank behind a value":      {"x-account", "a "},
		"a tab before a value":        {"x-account", "\ta"},
		"a tab behind a value":        {"x-account", "a\t"},
		"a value that is a blank":     {"x-account", " "},
		"a blank before the key":      {"idempotency-key", " k"},
		"a blank behind a credential": {"authorization", "Bearer a "},
	} {
		for _, key := range []string{"", "k1"} {
			if key != "" && fields[0] != "idempotency-key" {
				fields = append(fields, "idempotency-key", key)
			}
			if got := send("", fields...); !strings.Contains(got, "request_invalid") {
				t.Errorf("%s: %q", name, got)
			}
		}
	}
	for _, lengths := range [][2]string{{"7", "7"}, {"7", "8"}} {
		if got := send(`{"a":1}`, "content-length", lengths[0], "content-length", lengths[1], "idempotency-key", "k2"); !strings.Contains(got, "request_invalid") {
			t.Errorf("lengths %v: %q", lengths, got)
		}
	}
	if n := runs.Load(); n > 0 {
		t.Errorf("%d came through", n)
	}
	for name, got := range map[string]string{
		"without a length":   send(`{"a":1}`, "idempotency-key", "k3"),
		"with its length":    send(`{"a":1}`, "content-length", "7", "idempotency-key", "k4"),
		"without a key":      send(`{"a":1}`, "content-length", "7", "x-account", "a b"),
		"an empty value":     send(`{"a":1}`, "x-account", ""),
		"with leading zeros": send(`{"a":1}`, "content-length", "007"),
	} {
		if got != `ran {"a":1}` {
			t.Errorf("%s: %q", name, got)
		}
	}
	for _, key := range []string{"k5", "k6"} {
		if got := send("", "content-length", "0", "idempotency-key", key); got != "ran " {
			t.Errorf("an announced empty body: %q", got)
		}
	}
}

// By HTTP/2 a body that is announced to be empty may still be without its end.
func TestSecurity_AnEmptyBodyThatDoesNotEndIsEnded(t *testing.T) {
	var runs atomic.Int32
	up := upstream(t, func(http.ResponseWriter, *http.Request) { runs.Add(1) })
	p := proxy.New([]proxy.Route{{Pattern: "/", Upstream: up, Guard: newGuard(onlyonce.Config{}), Idempotency: single}}, proxy.Config{BodyTimeout: 50 * time.Millisecond})
	fields := http2Fields(":method", "POST", ":scheme", "http", ":authority", "a.example", ":path", "/v1/orders", "content-length", "0", "idempotency-key", "k")
	got := sendHTTP2Frames(t, serve(t, p), http2Frame(http2Headers, http2EndHeaders, 1, fields))
	if !strings.Contains(got, "body_unreadable") {
		t.Errorf("answered: %q", got)
	}
	if n := runs.Load(); n > 0 {
		t.Errorf("%d came through", n)
	}
}

// lateWriter keeps the header of an interim response and encodes it later, as net/http
// does over HTTP/2 if the client resets its stream. Like net/http, it copies a header that has
// a length.
type lateWriter struct {
	*httptest.ResponseRecorder
	late http.Header
}

func (w *lateWriter) WriteHeader(status int) {
	if status >= 200 {
		w.ResponseRecorder.WriteHeader(status)
		return
	}
	w.late = w.Header()
	if _, ok := w.late["Content-Length"]; ok {
		w.late = w.late.Clone()
		w.late.Del("Content-Length")
	}
}

func TestSecurity_AStreamThatIsResetDuringAnInterimResponseDoesNotEndTheProxy(t *testing.T) {
	up := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</a.css>")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		io.WriteString(w, "hi")
	})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/2.0", 2, 0
	w := &lateWriter{ResponseRecorder: httptest.NewRecorder()}
	proxy.New([]proxy.Route{{Pattern: "/", Upstream: up}}, proxy.Config{}).ServeHTTP(w, r)
	if w.Code != 200 || w.Body.String() != "hi" || fmt.Sprint(w.late) != "map[Link:[</a.css>]]" {
		t.Errorf("%d, %q, and an interim response with %v", w.Code, w.Body, w.late)
	}
}
