package h1

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/proxy/internal/syntax"
)

// spoken is a connection from which that text comes, in pieces.
type spoken struct {
	net.Conn
	text  string
	piece int
}

func (c *spoken) Read(p []byte) (int, error) {
	if c.text == "" {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), c.piece)], c.text)
	c.text = c.text[n:]
	return n, nil
}

func (c *spoken) SetReadDeadline(time.Time) error { return nil }

// hear receives a response to a request of that method, as a conn does, and reports
// whether another may follow on the connection.
func hear(method, raw string, piece int) (status int, body string, keep bool, err error) {
	c := &conn{Conn: &spoken{text: raw, piece: piece}, in: make([]byte, 0, minReadBuf)}
	c.begin(context.Background())
	c.owner, c.complete = "tenant", true
	if err := c.receive(method, nil); err != nil {
		return 0, "", false, err
	}
	var all strings.Builder
	err = c.body(func(p []byte) bool {
		all.Write(p)
		return true
	})
	return c.head.status, all.String(), err == nil && !c.head.close && c.at == len(c.in), err
}

const ok = "HTTP/1.1 200 OK\r\n"

func TestResponse_AResponseIsReadInOneWay(t *testing.T) {
	for raw, want := range map[string]string{
		ok + "Content-Length: 2\r\n\r\nhi":                                                                    "hi",
		ok + "content-length:\t2 \r\n\r\nhi":                                                                  "hi",
		ok + "Content-Length: 0\r\n\r\n":                                                                      "",
		ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n":                                         "hi",
		ok + "Transfer-Encoding: Chunked\r\n\r\n02;a=\"b\"\r\nhi\r\nA\r\n0123456789\r\n000\r\n\r\n":           "hi0123456789",
		ok + "Transfer-Encoding: chunked\r\n\r\n0\r\nX-Sum: 1\r\n\r\n":                                        "",
		"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nhi":                                                         "hi",
		"HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\nhi":                                                        "hi",
		"HTTP/1.1 100 Continue\r\n\r\n" + ok + "Content-Length: 2\r\n\r\nhi":                                  "hi",
		"HTTP/1.1 103 Early\r\nLink: x\r\n\r\n" + ok + "Content-Length: 2\r\n\r\nhi":                          "hi",
		"HTTP/1.1 204 No Content\r\n\r\n":                                                                     "",
		"HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n":                                              "",
		ok + "Connection: close\r\nContent-Length: 2\r\n\r\nhi":                                               "hi, and the end",
		ok + "Connection: X, Close\r\nContent-Length: 2\r\n\r\nhi":                                            "hi, and the end",
		ok + "Connection: " + strings.Repeat("x,", MaxConnectionNames-1) + "x\r\nContent-Length: 2\r\n\r\nhi": "hi",
		"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi":                                                      "hi, and the end",
		"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\nhi":                                                 "hi, and the end",
		ok + "\r\nhi":                           "hi, and the end",
		ok + "Content-Length: 2\r\n\r\nhi" + ok: "hi, and the end",
		ok + "Content-Length: 2\r\n\r\nhi\r\n":  "hi, and the end",
		"HTTP/1.1 204 No Content\r\n\r\nhi":     ", and the end",
		ok + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n": ", and the end",
	} {
		for _, piece := range []int{1, 3, len(raw)} {
			_, body, keep, err := hear("POST", raw, piece)
			if !keep {
				body += ", and the end"
			}
			// Bytes after a response may arrive late: the pool checks when the connection is used again.
			if err != nil || body != want && (piece == len(raw) || body != strings.TrimSuffix(want, ", and the end")) {
				t.Errorf("pieces of %d: %q is %q, %v; want %q", piece, raw, body, err, want)
			}
		}
	}
	if _, body, keep, err := hear("HEAD", ok+"Content-Length: 2\r\n\r\n", 100); body != "" || !keep || err != nil {
		t.Errorf("HEAD: %q %v %v", body, keep, err)
	}
}

// smuggled are responses that may be read in two ways, or that no server sends.
var smuggled = []string{
	ok + "Content-Length: 2\r\nContent-Length: 2\r\n\r\nhi",
	ok + "Content-Length: 2\r\nContent-Length: 3\r\n\r\nhi",
	ok + "Content-Length: 2, 2\r\n\r\nhi",
	ok + "Content-Length: +2\r\n\r\nhi",
	ok + "Content-Length: -2\r\n\r\nhi",
	ok + "Content-Length: 0x2\r\n\r\nhi",
	ok + "Content-Length: 2 2\r\n\r\nhi",
	ok + "Content-Length:\r\n\r\nhi",
	ok + "Content-Length: 99999999999999999999\r\n\r\nhi",
	ok + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	ok + "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n",
	ok + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	ok + "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
	ok + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
	ok + "Transfer-Encoding: identity\r\n\r\nhi",
	ok + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
	ok + "Transfer-Encoding: chunked\x00\r\n\r\n0\r\n\r\n",
	ok + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
	ok + "Content-Length\t: 2\r\n\r\nhi",
	ok + " Content-Length: 2\r\n\r\nhi",
	ok + "X: y\r\n Content-Length: 2\r\n\r\nhi",
	ok + "X: y\r\n\tz\r\n\r\nhi",
	ok + "X: y\nContent-Length: 2\r\n\r\nhi",
	ok + "X: y\rContent-Length: 2\r\n\r\nhi",
	ok + "X: a\x00b\r\n\r\nhi",
	ok + "X\r\n\r\nhi",
	ok + ": y\r\n\r\nhi",
	ok + "X Y: y\r\n\r\nhi",
	ok + "Content-Length: 2\n\nhi",
	ok + "Content-Length: 2\r\n\nhi",
	ok + "Content-Length: 2\r\r\n\r\nhi",
	"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\nhi",
	"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"HTTP/1.1 103 Early\r\nContent-Length: 2\r\n\r\nhi" + ok + "\r\n",
	"HTTP/1.1 101 Switching Protocols\r\n\r\n",
	"HTTP/1.1 101 Switching Protocols\r\n\r\n" + ok + "Content-Length: 2\r\n\r\nhi",
	"HTTP/1.1 200 OK\nContent-Length: 2\r\n\r\nhi",
	"HTTP/1.1  200 OK\r\n\r\n", "HTTP/1.1 20 OK\r\n\r\n", "HTTP/1.1 2000 OK\r\n\r\n", "HTTP/1.1 2x0 OK\r\n\r\n", "HTTP/1.1 099 OK\r\n\r\n",
	"HTTP/2.0 200 OK\r\n\r\n", "HTTP/1.2 200 OK\r\n\r\n", "http/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 O\x00K\r\n\r\n", "\r\n" + ok + "\r\n", " " + ok + "\r\n", "hi\r\n\r\n",
	ok + "Transfer-Encoding: chunked\r\n\r\n2\nhi\r\n0\r\n\r\n",
	ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\n0\r\n\r\n",
	ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi!\r\n0\r\n\r\n",
	ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi0\r\n\r\n",
	ok + "Transfer-Encoding: chunked\r\n\r\n0x2\r\nhi\r\n0\r\n\r\n",
	ok + "Transfer-Encoding: chunked\r\n\r\n +2\r\nhi\r\n0\r\n\r\n",
	ok + "Transfer-Encoding: chunked\r\n\r\n2 \r\nhi\r\n0\r\n\r\n",
	ok + "Transfer-Encoding: chunked\r\n\r\n\r\nhi\r\n0\r\n\r\n",
	ok + "Transfer-Encoding: chunked\r\n\r\n-1\r\nhi\r\n0\r\n\r\n",
	ok + "Transfer-Encoding: chunked\r\n\r\n10000000000000002\r\nhi\r\n0\r\n\r\n",
	ok + "Transfer-Encoding: chunked\r\n\r\n2;a\rb\r\nhi\r\n0\r\n\r\n",
	ok + "Transfer-Encoding: chunked\r\n\r\n2;" + strings.Repeat("a", 1000) + "\r\nhi\r\n0\r\n\r\n",
	ok + "Transfer-Encoding: chunked\r\n\r\n0\r\nX: y\n\r\n",
	ok + "Transfer-Encoding: chunked\r\n\r\n0\r\nX y\r\n\r\n",
	ok + "Transfer-Encoding: chunked\r\n\r\n0\r\n X: y\r\n\r\n",
	ok + "Transfer-Encoding: chunked\r\n\r\n0\r\n" + strings.Repeat("X: "+strings.Repeat("y", 1000)+"\r\n", 10) + "\r\n",
	ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n",
	ok + "Content-Length: 3\r\n\r\nhi",
	ok + strings.Repeat("X: y\r\n", mostFields+1) + "\r\n",
	ok + "X: " + strings.Repeat("y", MaxHead) + "\r\n\r\n",
	ok + "Connection: " + strings.Repeat("x,", MaxConnectionNames) + "x\r\nContent-Length: 2\r\n\r\nhi",
	strings.Repeat("HTTP/1.1 103 Early\r\n\r\n", MaxInterim+1) + ok + "\r\n",
	"", ok, ok + "Content-Length: 2\r\n",
}

func TestResponse_AResponseThatMayBeReadInTwoWaysIsAnError(t *testing.T) {
	for _, raw := range smuggled {
		for _, piece := range []int{1, 3, len(raw) + 1} {
			if status, body, _, err := hear("POST", raw, piece); err == nil {
				t.Errorf("pieces of %d: %.200q is taken for %d %q", piece, raw, status, body)
			}
		}
	}
}

// TestResponse_ALongResponseTakesLittleMemoryHoweverItIsSent: an upstream decides how long
// the line before a chunk is, and how much of it arrives at a time.
func TestResponse_ALongResponseTakesLittleMemoryHoweverItIsSent(t *testing.T) {
	const chunks = 1 << 10
	chunk := "1;" + strings.Repeat("x", syntax.MaxChunkLine-len("1;\r\n")) + "\r\nX\r\n"
	raw := ok + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat(chunk, chunks) + "0\r\n\r\n"
	for _, piece := range []int{len(chunk) / 2, len(chunk) - 1, len(chunk), len(raw)} {
		c := &conn{Conn: &spoken{text: raw, piece: piece}, in: make([]byte, 0, minReadBuf)}
		c.begin(t.Context())
		if err := c.receive("GET", nil); err != nil {
			t.Fatal(err)
		}
		n := 0
		err := c.body(func(p []byte) bool {
			n += len(p)
			return true
		})
		if err != nil || n != chunks || cap(c.in) > maxReadBuf {
			t.Errorf("in pieces of %d bytes: %d bytes of a body with %d, in %d bytes of memory, %v", piece, n, chunks, cap(c.in), err)
		}
	}
}

// FuzzResponse holds the reading of responses to that of net/http: what we take, it
// takes for the same.
func FuzzResponse(f *testing.F) {
	for _, raw := range smuggled {
		f.Add(raw, byte(3), false)
	}
	f.Add(ok+"Transfer-Encoding: chunked\r\n\r\n2;x\r\nhi\r\n0\r\nA: b\r\n\r\n", byte(1), false)
	f.Add(ok+"Content-Length: 2\r\nConnection: close\r\n\r\nhi", byte(1), true)
	f.Add("HTTP/1.1 103 x\r\n\r\nHTTP/1.0 200 OK\r\n\r\nhi", byte(9), false)
	f.Fuzz(func(t *testing.T, raw string, piece byte, head bool) {
		method := "POST"
		if head {
			method = "HEAD"
		}
		status, body, keep, err := hear(method, raw, int(piece)+1)
		if err != nil {
			return
		}
		in := bufio.NewReader(strings.NewReader(raw))
		for {
			res, err := http.ReadResponse(in, &http.Request{Method: method})
			if err != nil {
				t.Fatalf("net/http rejects %q: %v", raw, err)
			}
			theirs, err := io.ReadAll(res.Body)
			if res.StatusCode < 200 {
				continue
			}
			if err != nil || res.StatusCode != status || string(theirs) != body || keep && res.Close {
				t.Fatalf("%q: we %d %q %v, net/http %d %q %v, %v", raw, status, body, keep, res.StatusCode, theirs, !res.Close, err)
			}
			return
		}
	})
}
