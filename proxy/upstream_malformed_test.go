package proxy_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/proxy"
)

func TestListener_AFloodOfInterimResponsesEnds(t *testing.T) {
	up, _, _ := scripted(t, func(int, *http.Request) (string, bool) {
		return strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", 10_000) + "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", false
	})
	addr := orders(t, up, onlyonce.Config{}, nil)
	for _, key := range []string{"Idempotency-Key: k\r\n", ""} {
		response := exchange(t, addr, post11+key+"Connection: close\r\n\r\n", 1000)
		if n := strings.Count(response, "HTTP/1.1 103"); n > 20 || !strings.Contains(response, "HTTP/1.1 502 ") || !strings.Contains(response, "upstream_failed") {
			t.Errorf("key %q: %d interim responses, %.300q", key, n, response)
		}
	}
}

func TestListener_AResponseWithALongHeaderIs502(t *testing.T) {
	long := func(w http.ResponseWriter, _ *http.Request) {
		for i := range 10 { // 80 KiB
			w.Header().Set("X-"+strconv.Itoa(i), strings.Repeat("x", 8<<10))
		}
	}
	for _, up := range []*proxy.Upstream{upstream(t, long), upstream2(t, long)} {
		addr := orders(t, up, onlyonce.Config{}, nil)
		for _, key := range []string{"k", ""} {
			res, body := post(t, addr, key, "x")
			wantProblem(t, res, body, 502, "upstream_failed", key != "")
		}
	}
}

func TestListener_ASwitchOfProtocolsThatNobodyAskedForIs502(t *testing.T) {
	old, _, _ := scripted(t, func(int, *http.Request) (string, bool) {
		return "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", false
	})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusSwitchingProtocols) // which net/http sends as an interim response
		io.WriteString(w, "hi")
	}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	defer s.Close()
	for _, up := range []*proxy.Upstream{old, {URL: parse(t, s.URL), HTTP2: true}} {
		addr := orders(t, up, onlyonce.Config{}, nil)
		for _, key := range []string{"Idempotency-Key: k\r\n", ""} {
			response := exchange(t, addr, post11+key+"Connection: close\r\n\r\n", 1000)
			if !strings.HasPrefix(response, "HTTP/1.1 502 ") || !strings.Contains(response, "upstream_failed") {
				t.Errorf("HTTP/2 %t, key %q: %q", up.HTTP2, key, response)
			}
		}
	}
}

func TestListener_AStatusThatIsNoneIs502(t *testing.T) {
	for _, status := range []string{"000", "001", "099", "1000", "99", "-10", "+20", "20", "abc", "2 0"} {
		up, _, _ := scripted(t, func(int, *http.Request) (string, bool) {
			return "HTTP/1.1 " + status + " OK\r\nContent-Length: 2\r\n\r\nhi", false
		})
		addr := orders(t, up, onlyonce.Config{}, nil)
		for _, key := range []string{"k", ""} {
			res, body := post(t, addr, key, "x")
			wantProblem(t, res, body, 502, "upstream_failed", key != "")
		}
	}
}

// A client may expect the next response where such a body begins.
func TestListener_ABodyAfterAResetOfContentIsNotPassedOn(t *testing.T) {
	for name, raw := range map[string]string{
		"of a length": "Content-Length: 8\r\n\r\nsmuggled", "in chunks": "Transfer-Encoding: chunked\r\n\r\n8\r\nsmuggled\r\n0\r\n\r\n", "to the end": "\r\nsmuggled",
	} {
		up, _, _ := scripted(t, func(int, *http.Request) (string, bool) { return "HTTP/1.1 205 Reset Content\r\n" + raw, false })
		addr := orders(t, up, onlyonce.Config{}, nil)
		for _, head := range []string{"POST /v1/orders HTTP/1.1\r\nIdempotency-Key: k\r\n", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nTE: trailers\r\n"} {
			sent := head + "Host: h\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
			if got := exchange(t, addr, sent, len(sent)); strings.Contains(got, "smuggled") {
				t.Errorf("%s, %q: %q", name, head, got)
			}
		}
	}
	for _, raw := range []string{"Content-Length: 0\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "\r\n"} {
		up, _, _ := scripted(t, func(int, *http.Request) (string, bool) { return "HTTP/1.1 205 Reset Content\r\n" + raw, false })
		addr := orders(t, up, onlyonce.Config{}, nil)
		for _, key := range []string{"k", "k", ""} {
			if res, body := post(t, addr, key, "x"); res.StatusCode != 205 || body != "" {
				t.Errorf("%q, key %q: %d %q", raw, key, res.StatusCode, body)
			}
		}
	}
}

// TestListener_AnAmbiguousLengthIs502: net/http passes on such lengths of an HTTP/2
// response, and a client that receives them over HTTP/1.1 could find another response in
// its body.
func TestListener_AnAmbiguousLengthIs502(t *testing.T) {
	t.Parallel()
	for _, lengths := range [][]string{{"1", "2"}, {"2", "2"}, {"+2"}, {"2, 2"}, {"0x2"}, {"-1"}, {""}, {"99999999999999999999"}} {
		s := &framed{}
		s.answers = func(c *framedConn, stream uint32, _ string) {
			fields := "\x88" // :status 200
			for _, length := range lengths {
				fields += "\x0f\x0d" + string(rune(len(length))) + length // content-length
			}
			c.frame(frameHeaders, endHeaders, stream, fields)
			c.frame(frameData, endStream, stream, "hi")
		}
		overHTTP1, _, _ := scripted(t, func(int, *http.Request) (string, bool) {
			return "HTTP/1.1 200 OK\r\nContent-Length: " + strings.Join(lengths, "\r\nContent-Length: ") + "\r\n\r\nhi", false
		})
		for _, up := range []*proxy.Upstream{s.start(t), overHTTP1} {
			addr := orders(t, up, onlyonce.Config{HoldUnknown: true}, nil)
			for _, key := range []string{"k", ""} {
				if key == "" && !up.HTTP2 && lengths[0] == "2" && len(lengths) == 2 {
					continue // RFC 9112, section 6.3, allows to join equal ones, as net/http does
				}
				head := "POST /v1/orders HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 1\r\n"
				if key != "" {
					head += "Idempotency-Key: " + key + "\r\n"
				}
				raw := head + "\r\nx"
				if response := exchange(t, addr, raw, len(raw)); !strings.HasPrefix(response, "HTTP/1.1 502 ") {
					t.Errorf("%q, HTTP/2 %v, key %q: %.200q", lengths, up.HTTP2, key, response)
				}
			}
		}
	}
}
