package proxy

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/proxy/internal/inbound"
)

// follow scans raw in pieces, and returns how much of it is good.
func follow(raw string, piece int) (good int, s inbound.Scanner) {
	for good < len(raw) {
		p := []byte(raw[good:min(good+piece, len(raw))])
		n := s.Feed(p)
		if good += n; n < len(p) {
			break
		}
	}
	return good, s
}

func TestListener_WhatIsNotToBeScannedIsHTTP2FromTheStartInClearTextOnly(t *testing.T) {
	const h2, get = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
	for _, piece := range []int{1, 5, 100} {
		if good, s := follow(h2+"\x00\n", piece); good != len(h2)+2 || !s.IsOpaque() {
			t.Errorf("pieces of %d: %d good", piece, good)
		}
		for _, raw := range []string{get + h2, "PRI * HTTP/2.0\r\n\r\nSN\r\n\r\n", "PRI * HTTP/2.0\r\nHost: h\r\n\r\n", "GET /#x HTTP/1.1\r\n\r\n"} {
			if good, s := follow(raw, piece); good == len(raw) || s.IsOpaque() {
				t.Errorf("pieces of %d: %q is good", piece, raw)
			}
		}
	}
	s := inbound.Scanner{Secure: true}
	if good := s.Feed([]byte(h2)); good == len(h2) {
		t.Error("HTTP/2 may begin inside TLS without ALPN")
	}
}

// FuzzScan holds the scan of what a client sends to net/http: what is good is read
// there as the same requests, bodies and all; and pieces make no difference.
func FuzzScan(f *testing.F) {
	for _, raw := range []string{
		"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhiGET / HTTP/1.1\r\nHost: h\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nhi\r\n0\r\nA: b\r\n\r\n",
		"GET / HTTP/1.0\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n",
	} {
		f.Add(raw, byte(3))
	}
	for _, raw := range quotedLines(f, "testdata/framings.txt") {
		f.Add(raw, byte(7))
	}
	f.Fuzz(func(t *testing.T, raw string, piece byte) {
		good, s := follow(raw, int(piece)+1)
		all, _ := follow(raw, len(raw)+1)
		if good > len(raw) || all > good || (all < len(raw)) != (good < len(raw)) {
			t.Fatalf("%q: %d good in pieces, %d at once", raw, good, all)
		}
		if good < len(raw) || !s.IsBetween() {
			return // rejected, or not whole
		}
		ours := strings.NewReader(raw)
		in := bufio.NewReader(ours)
		for {
			if _, err := in.Peek(1); err == io.EOF {
				return
			}
			r, err := http.ReadRequest(in)
			if err != nil {
				// net/http may reject what the proxy does not check, but must agree on where the request ends.
				if text := err.Error(); strings.Contains(text, "parse ") || strings.Contains(text, "Host") || strings.Contains(text, "invalid method") {
					return
				}
				t.Fatalf("net/http rejects %q: %v", raw, err)
			}
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				t.Fatalf("net/http does not come to the end of a body in %q: %v", raw, err)
			}
		}
	})
}

// FuzzFraming holds what is sent to an upstream to what came: each request that is
// accepted is sent as one, with its body and no other's.
func FuzzFraming(f *testing.F) {
	for _, raw := range quotedLines(f, "testdata/framings.txt") {
		f.Add(raw)
	}
	for _, target := range targets(f) {
		f.Add("POST " + target + " HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi")
	}
	table := matchedTable(f)
	f.Fuzz(func(t *testing.T, raw string) {
		if good, s := follow(raw, len(raw)+1); good < len(raw) || !s.IsBetween() {
			return // rejected, or not whole
		}
		in := bufio.NewReader(strings.NewReader(raw))
		for {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return // FuzzScan judges that
			}
			path, err := normalPath(escapedPath(r))
			if err != nil || table.invalidReason(r) != nil {
				continue
			}
			setPath(r, path)
			rt, ok := table.match(r, path)
			if !ok || rt == nil {
				continue
			}
			table.sensitive.strip(r.Header, false, false)
			r.Body = io.NopCloser(bytes.NewReader(body))
			wantOneRequest(t, table, rt, r, path, body)
		}
	})
}

// wantOneRequest fails unless the request is written as one that is read as it is.
func wantOneRequest(t *testing.T, table *table, rt *route, r *http.Request, path string, body []byte) {
	t.Helper()
	q, err := rt.outgoing(r, nil)
	if err != nil {
		return
	}
	defer q.Release()
	raw, err := q.Bytes()
	if err != nil {
		return
	}
	if good, s := follow(string(raw), 1000); good < len(raw) || !s.IsBetween() {
		t.Fatalf("what is sent may be read in two ways: %q", raw)
	}
	in := bufio.NewReader(bytes.NewReader(raw))
	sent, err := http.ReadRequest(in)
	if err != nil {
		t.Fatalf("%q is sent: %v", raw, err)
	}
	got, err := io.ReadAll(sent.Body)
	if _, more := in.Peek(1); err != nil || more != io.EOF || !bytes.Equal(got, body) || sent.Method != r.Method || sent.URL.EscapedPath() != path || len(sent.TransferEncoding) > 0 {
		t.Fatalf("%s %s with %q is sent as %q", r.Method, path, body, raw)
	}
	for name := range sent.Header {
		if other := spelled(name); other != name && (table.sensitive.has(other) || isMethodOverride(other)) {
			t.Fatalf("%s is sent, which some servers take for %s", name, other)
		}
	}
}

func TestListener_TheCorpusOfFramingsIsRejectedOrReadInOneWay(t *testing.T) {
	rejected := 0
	for _, raw := range quotedLines(t, "testdata/framings.txt") {
		good, _ := follow(raw, len(raw)+1)
		if good < len(raw) {
			rejected++
			if one, _ := follow(raw, 1); one < good || strings.Contains(raw[:good], "/smuggled") {
				t.Errorf("%q: %d bytes are good, one by one %d", raw, good, one)
			}
		}
	}
	if rejected < 100 {
		t.Errorf("%d are rejected", rejected)
	}
}
