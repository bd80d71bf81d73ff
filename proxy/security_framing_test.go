package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

const (
	post11 = "POST /v1/orders HTTP/1.1\r\nHost: h\r\n"
	get11  = "GET / HTTP/1.1\r\nHost: h\r\n"
)

// ambiguous are requests that may be read in two ways, or that no client sends:
// each has to be rejected before the upstream sees anything of it.
var ambiguous = map[string]string{
	"01 length and coding":                   post11 + "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nX",
	"02 coding and length":                   post11 + "Transfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\nX",
	"03 two lengths":                         post11 + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
	"04 one length twice":                    post11 + "Content-Length: 1\r\nContent-Length: 1\r\n\r\nx",
	"05 a list of lengths":                   post11 + "Content-Length: 1, 1\r\n\r\nx",
	"06 a signed length":                     post11 + "Content-Length: +1\r\n\r\nx",
	"07 a negative length":                   post11 + "Content-Length: -1\r\n\r\nx",
	"08 a hexadecimal length":                post11 + "Content-Length: 0x1\r\n\r\nx",
	"09 an empty length":                     post11 + "Content-Length: \r\n\r\nx",
	"10 a length beyond 64 bits":             post11 + "Content-Length: 18446744073709551617\r\n\r\nx",
	"11 a length with a space in it":         post11 + "Content-Length: 1 1\r\n\r\nxxxxxxxxxxx",
	"12 another coding":                      post11 + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
	"13 two codings":                         post11 + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
	"14 chunked twice":                       post11 + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"15 identity":                            post11 + "Transfer-Encoding: identity\r\n\r\n",
	"16 a quoted coding":                     post11 + "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n",
	"17 a coding after a vertical tab":       post11 + "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
	"18 a coding in HTTP/1.0":                "POST /v1/orders HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"19 a space before the colon":            post11 + "Content-Length : 1\r\n\r\nx",
	"20 a tab before the colon":              post11 + "Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n",
	"21 a folded line":                       post11 + "Idempotency-Key: a\r\n b\r\n\r\n",
	"22 a folded coding":                     post11 + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
	"23 a folded first line":                 "POST /v1/orders HTTP/1.1\r\n Host: h\r\n\r\n",
	"24 a line that ends with LF":            post11 + "X: y\n\r\n",
	"25 a head that ends with LF":            post11 + "X: y\r\n\n",
	"26 a request line that ends with LF":    "POST /v1/orders HTTP/1.1\nHost: h\r\n\r\n",
	"27 a CR alone":                          post11 + "X: y\rContent-Length: 1\r\n\r\n",
	"28 a CR alone in the request line":      "POST /v1/orders\r HTTP/1.1\r\nHost: h\r\n\r\n",
	"29 a zero byte":                         post11 + "X: a\x00b\r\n\r\n",
	"30 a zero byte in a name":               post11 + "Content-Length\x00: 1\r\n\r\nx",
	"31 a line without a colon":              post11 + "Content-Length\r\n\r\n",
	"32 a line without a name":               post11 + ": x\r\n\r\n",
	"33 a whole URL":                         "POST http://169.254.169.254/v1/orders HTTP/1.1\r\nHost: h\r\n\r\n",
	"34 CONNECT":                             "CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: 169.254.169.254:80\r\n\r\n",
	"35 a target that is no path":            "POST v1/orders HTTP/1.1\r\nHost: h\r\n\r\n",
	"36 a space in the target":               "POST /v1/orders x HTTP/1.1\r\nHost: h\r\n\r\n",
	"37 two spaces":                          "POST  /v1/orders HTTP/1.1\r\nHost: h\r\n\r\n",
	"38 a fragment":                          "POST /v1/orders#x HTTP/1.1\r\nHost: h\r\n\r\n",
	"39 another version":                     "POST /v1/orders HTTP/1.2\r\nHost: h\r\n\r\n",
	"40 no version":                          "POST /v1/orders\r\n\r\n",
	"41 HTTP/2 without its preface":          "PRI * HTTP/2.0\r\nHost: h\r\n\r\n",
	"42 HTTP/2 after HTTP/1":                 get11 + "\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	"43 two hosts":                           "POST /v1/orders HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n",
	"44 no host":                             "POST /v1/orders HTTP/1.1\r\n\r\n",
	"45 a user in the host":                  "POST /v1/orders HTTP/1.1\r\nHost: a@b\r\n\r\n",
	"46 a path in the host":                  "POST /v1/orders HTTP/1.1\r\nHost: h/x\r\n\r\n",
	"47 an empty line first":                 "\r\n" + post11 + "\r\n",
	"48 a method with a separator":           "PO(ST /v1/orders HTTP/1.1\r\nHost: h\r\n\r\n",
	"49 a chunk that ends with LF":           post11 + "Transfer-Encoding: chunked\r\n\r\n1\nx\r\n0\r\n\r\n",
	"50 a chunk without a length":            post11 + "Transfer-Encoding: chunked\r\n\r\n\r\nx\r\n0\r\n\r\n",
	"51 a chunk of 0x":                       post11 + "Transfer-Encoding: chunked\r\n\r\n0x1\r\nx\r\n0\r\n\r\n",
	"52 a chunk longer than it says":         post11 + "Transfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n0\r\n\r\n",
	"53 a chunk beyond 64 bits":              post11 + "Transfer-Encoding: chunked\r\n\r\n10000000000000001\r\nx\r\n0\r\n\r\n",
	"54 a CR alone in a chunk's extension":   post11 + "Transfer-Encoding: chunked\r\n\r\n1;a\rb\r\nx\r\n0\r\n\r\n",
	"55 a length in the trailer":             post11 + "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nContent-Length: 1\r\n\r\n",
	"56 a key in the trailer":                post11 + "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nIdempotency-Key: k\r\n\r\n",
	"57 a folded trailer":                    post11 + "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX: y\r\n z\r\n\r\n",
	"58 no end of the trailer but LF":        post11 + "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\n",
	"59 spaces behind the length of a chunk": post11 + "Transfer-Encoding: chunked\r\n\r\n1 \r\nx\r\n0\r\n\r\n",
	"60 a method in another case":            "post /v1/orders HTTP/1.1\r\nHost: h\r\n\r\n",
	"61 a tab before a length":               post11 + "Content-Length:\t1\r\n\r\nx",
}

// exchange sends raw bytes in pieces of the given size, and returns all that comes
// back until the connection is closed.
func exchange(t testing.TB, addr, raw string, piece int) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	go func() {
		for len(raw) > 0 {
			n := min(piece, len(raw))
			if _, err := io.WriteString(c, raw[:n]); err != nil {
				return
			}
			raw = raw[n:]
		}
	}()
	response, err := io.ReadAll(c)
	if err, ok := err.(net.Error); ok && err.Timeout() {
		t.Fatalf("the connection stays open after %q", response)
	}
	return string(response)
}

func TestSecurity_RequestsThatMayBeReadInTwoWaysAreRejected(t *testing.T) {
	var seen atomic.Int32
	up := upstream(t, func(_ http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); r.Method == "POST" && err == nil {
			seen.Add(1)
		}
	})
	addr := orders(t, up, onlyonce.Config{}, nil)
	for name, raw := range ambiguous {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, raw := range []string{raw, strings.Replace(raw, "Host: ", "Idempotency-Key: k\r\nHost: ", 1)} {
				for _, piece := range []int{len(raw), 1, 7} {
					response := exchange(t, addr, raw, piece)
					if strings.HasPrefix(raw, "GET") {
						_, response, _ = strings.Cut(response, "\r\n\r\n")
					}
					if !strings.HasPrefix(response, "HTTP/1.1 400 ") || strings.Count(response, "HTTP/1.") > 1 {
						t.Errorf("pieces of %d: %q gets the response %q", piece, raw, response)
					}
				}
			}
		})
	}
	t.Cleanup(func() {
		if n := seen.Load(); n > 0 {
			t.Errorf("the upstream has seen %d of them", n)
		}
	})
}

func TestSecurity_WhatCanBeReadInOneWayPasses(t *testing.T) {
	addr := orders(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %q %v", r.Method, r.RequestURI, body, err)
	}), onlyonce.Config{}, nil)
	for raw, want := range map[string]string{
		post11 + "\r\n":                         `POST /v1/orders "" <nil>`,
		post11 + "content-length:1\r\n\r\nx":    `POST /v1/orders "x" <nil>`,
		post11 + "CONTENT-LENGTH: 01 \r\n\r\nx": `POST /v1/orders "x" <nil>`,
		post11 + "transfer-encoding:  Chunked\r\n\r\n1;a=b\r\nx\r\n00\r\nX-Sum: 1\r\n\r\n":              `POST /v1/orders "x" <nil>`,
		post11 + "Transfer-Encoding: chunked\r\nIdempotency-Key: k\r\n\r\nA\r\n0123456789\r\n0\r\n\r\n": `POST /v1/orders "0123456789" <nil>`,
		get11 + "X:\r\nY: ü\t \r\n\r\n":                               `GET / "" <nil>`,
		get11 + strings.Repeat("a:\r\n", 999) + "\r\n":                `GET / "" <nil>`,
		"GET /a%2fb//c/d?x=1&y=;z HTTP/1.1\r\nHost: h\r\n\r\n":        `GET /a%2Fb//c/d?x=1&y=;z "" <nil>`,
		"GET /a/../c|d?x=1 HTTP/1.1\r\nHost: h\r\n\r\n":               `GET /c%7Cd?x=1 "" <nil>`,
		"GET /%61?%zz HTTP/1.1\r\nHost: [::1]:80\r\n\r\n":             `GET /a?%zz "" <nil>`,
		"GET / HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\n\r\n": `GET / "" <nil>`,
		"OPTIONS /x HTTP/1.1\r\nHost: h\r\n\r\n":                      `OPTIONS /x "" <nil>`,
	} {
		for _, piece := range []int{len(raw), 1} {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			in := bufio.NewReader(c)
			for range 3 { // on one connection
				go func() {
					for i := 0; i < len(raw); i += piece {
						io.WriteString(c, raw[i:min(i+piece, len(raw))])
					}
				}()
				res, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatalf("%q: %v", raw, err)
				}
				body, _ := io.ReadAll(res.Body)
				if string(body) != want {
					t.Errorf("%q is read as %s, want %s", raw, body, want)
				}
			}
			c.Close()
		}
	}
}

func TestSecurity_ABadRequestBehindGoodOnesIsRejectedInItsTurn(t *testing.T) {
	addr := orders(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "saw %s %s", r.Method, body)
	}), onlyonce.Config{}, nil)
	good := post11 + "Content-Length: 3\r\n\r\none" + post11 + "Transfer-Encoding: chunked\r\n\r\n3\r\ntwo\r\n0\r\n\r\n" + get11 + "\r\n"
	bad := post11 + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + get11 + "\r\n"
	for _, piece := range []int{1, 50, 1000} {
		response := exchange(t, addr, good+bad, piece)
		at := -1
		for _, want := range []string{"saw POST one", "saw POST two", "saw GET ", "HTTP/1.1 400 "} {
			next := strings.Index(response, want)
			if next <= at {
				t.Fatalf("pieces of %d: %q", piece, response)
			}
			at = next
		}
		if strings.Count(response, "HTTP/1.1 ") != 4 {
			t.Errorf("pieces of %d: %q", piece, response)
		}
	}
}
