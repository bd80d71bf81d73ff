package proxy_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/proxy"
)

func TestListener_AnUpstreamCantSetTheProxysHeaders(t *testing.T) {
	const claims = "Idempotency-Replayed: true\r\nidempotency-protected: no\r\nIdempotency-Expires: x\r\nIdempotency-Replay: omitted\r\nIdempotency_Replayed: true\r\nIdempotency-Fence: 7\r\nIdempotency-Key: k\r\n"
	up, _, _ := scripted(t, func(int, *http.Request) (string, bool) {
		return "HTTP/1.1 200 OK\r\n" + claims + "Content-Length: 2\r\n\r\nhi", false
	})
	overH2 := upstream2(t, func(w http.ResponseWriter, _ *http.Request) {
		for line := range strings.Lines(claims) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			w.Header().Set(name, value)
		}
	})
	for _, up := range []*proxy.Upstream{up, overH2} {
		addr := orders(t, up, onlyonce.Config{}, nil)
		for _, key := range []string{"k", ""} {
			res, _ := post(t, addr, key, "x")
			for name := range res.Header {
				if folded := strings.ToLower(strings.ReplaceAll(name, "_", "-")); strings.HasPrefix(folded, "idempotency-") && folded != "idempotency-key" && (key == "" || folded != "idempotency-expires") {
					t.Errorf("HTTP/2 %v, key %q: %s: %s", up.HTTP2, key, name, res.Header[name])
				}
			}
			if res.StatusCode != 200 || len(res.Header["Idempotency-Key"]) != 1 || len(res.Header["Idempotency-Expires"]) > 1 || res.Header.Get("Idempotency-Expires") == "x" {
				t.Errorf("HTTP/2 %v, key %q: %d %v", up.HTTP2, key, res.StatusCode, res.Header)
			}
		}
	}
}

func TestListener_AnUpstreamCantSetTheProxysHeadersBeforeOrAfterItsResponseEither(t *testing.T) {
	const claims = "Idempotency-Replayed: true\r\nIdempotency_Replayed: true\r\nidempotency-protected: no\r\nX-Kept: yes\r\n"
	for _, announced := range []string{"", "Idempotency-Replayed, X-Kept"} {
		line := ""
		if announced != "" {
			line = "Trailer: " + announced + "\r\n"
		}
		up, _, _ := scripted(t, func(int, *http.Request) (string, bool) {
			return "HTTP/1.1 103 Early Hints\r\n" + claims + "\r\nHTTP/1.1 200 OK\r\n" + line + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n" + claims + "\r\n", false
		})
		overH2 := upstream2(t, func(w http.ResponseWriter, _ *http.Request) {
			if announced != "" {
				w.Header().Set("Trailer", announced)
			}
			_, _ = io.WriteString(w, "hi")
			_ = http.NewResponseController(w).Flush()
			for claim := range strings.Lines(claims) {
				name, value, _ := strings.Cut(strings.TrimSpace(claim), ": ")
				if !strings.Contains(announced, name) {
					name = http.TrailerPrefix + name
				}
				w.Header().Set(name, value)
			}
		})
		for _, up := range []*proxy.Upstream{up, overH2} {
			addr := orders(t, up, onlyonce.Config{}, nil)
			for _, key := range []string{"Idempotency-Key: k\r\n", ""} {
				response := exchange(t, addr, post11+key+"Connection: close\r\nContent-Length: 0\r\n\r\n", 10000)
				lower := strings.ToLower(strings.ReplaceAll(response, "_", "-"))
				if strings.Contains(lower, "idempotency-replayed: ") || strings.Contains(lower, "idempotency-protected: ") || !strings.Contains(response, "X-Kept: yes") {
					t.Errorf("HTTP/2 %v, announced %q, key %q: %q", up.HTTP2, announced, key, response)
				}
			}
		}
	}
}

func TestListener_AResponseWithoutAContentTypeStaysSo(t *testing.T) {
	hints := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</a>")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header()["Content-Type"] = nil
		_, _ = io.WriteString(w, "<html>")
	}
	for _, up := range []*proxy.Upstream{upstream(t, hints), upstream2(t, hints)} {
		addr := orders(t, up, onlyonce.Config{}, nil)
		for _, key := range []string{"", "k", "k"} {
			if res, body := post(t, addr, key, "x"); res.StatusCode != 200 || body != "<html>" || len(res.Header["Content-Type"]) > 0 {
				t.Errorf("HTTP/2 %v, key %q: %d %q with the content type %q", up.HTTP2, key, res.StatusCode, body, res.Header["Content-Type"])
			}
		}
	}
}

func TestListener_ATrailerThatMattersToFramingOrCredentialsIsDropped(t *testing.T) {
	for name, announced := range map[string]string{
		"not announced":       "",
		"announced":           "X-Sum, Location, Set-Cookie",
		"in another spelling": "X-Sum, set-cookie",
	} {
		line := ""
		if announced != "" {
			line = "Trailer: " + announced + "\r\n"
		}
		up, _, _ := scripted(t, func(int, *http.Request) (string, bool) {
			return "HTTP/1.1 200 OK\r\n" + line + "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\nContent-Length: 7\r\nTransfer-Encoding: x\r\nConnection: x\r\nSet-Cookie: a=b\r\nAuthorization: x\r\nLocation: /\r\n\r\n", false
		})
		overH2 := upstream2(t, func(w http.ResponseWriter, _ *http.Request) {
			if announced != "" {
				w.Header().Set("Trailer", announced)
			}
			_, _ = io.WriteString(w, "ok")
			_ = http.NewResponseController(w).Flush()
			prefix := http.TrailerPrefix
			if announced != "" {
				prefix = ""
			}
			w.Header().Set(prefix+"X-Sum", "1")
			w.Header().Set(prefix+"Set-Cookie", "a=b")
			w.Header().Set(prefix+"Location", "/")
		})
		for _, up := range []*proxy.Upstream{up, overH2} {
			addr := orders(t, up, onlyonce.Config{}, nil)
			for _, key := range []string{"", "Idempotency-Key: k\r\n", "Idempotency-Key: k\r\n"} {
				got := exchange(t, addr, post11+"Content-Length: 0\r\nConnection: close\r\n"+key+"\r\n", 1000)
				if !strings.HasSuffix(got, "\r\n0\r\nX-Sum: 1\r\n\r\n") {
					t.Errorf("%s, HTTP/2 %v, %q: %q", name, up.HTTP2, key, got)
				}
			}
		}
	}
}
