package conform

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// A shot is one request.
type shot struct {
	method string
	url    string
	header http.Header
	keyed  string   // the name of the key's header
	keys   []string // its lines, each sent as it is
	body   []byte
}

// head returns the request's bytes up to its body.
func (s shot) head(u *url.URL) []byte {
	var b bytes.Buffer
	host := u.Host
	if s.header.Get("Host") != "" {
		host = s.header.Get("Host")
	}
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", s.method, u.RequestURI(), host)
	for _, name := range slices.Sorted(maps.Keys(s.header)) {
		if name == "Host" || name == "Content-Type" && s.body == nil {
			continue
		}
		for _, v := range s.header[name] {
			b.WriteString(name + ": " + v + "\r\n")
		}
	}
	for _, key := range s.keys {
		b.WriteString(s.keyed + ": " + key + "\r\n")
	}
	if s.header.Get("User-Agent") == "" {
		b.WriteString("User-Agent: onlyonce-check\r\n")
	}
	if s.method != http.MethodGet {
		b.WriteString("Content-Length: " + strconv.Itoa(len(s.body)) + "\r\n")
	}
	b.WriteString("Connection: close\r\n\r\n")
	return b.Bytes()
}

// A wire carries requests to one server, each on a connection of its own, so
// that what is sent is what was written.
type wire struct {
	tls     *tls.Config
	timeout time.Duration // of a request
	left    int           // how many more may be sent
	sent    int
	censor  *censor
}

// A call is a request on its connection.
type call struct {
	wire  *wire
	shot  shot
	conn  net.Conn
	head  []byte
	rest  []byte // the bytes that have not been written yet
	began time.Time
	stop  func() bool
}

// open connects. An error of it means that the target can't be reached.
func (w *wire) open(ctx context.Context, s shot) (*call, error) {
	if w.left == 0 {
		return nil, fmt.Errorf("%d requests were sent, as many as may be: the target asks for too many repeats", w.sent)
	}
	w.left--
	w.sent++
	u, err := url.Parse(s.url)
	if err != nil {
		return nil, err
	}
	conn, err := w.dial(ctx, u)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	c := &call{wire: w, shot: s, conn: conn, head: s.head(u)}
	c.rest = append(bytes.Clone(c.head), s.body...)
	if err := conn.SetDeadline(time.Now().Add(w.timeout)); err != nil {
		conn.Close()
		return nil, fmt.Errorf("connect: %w", err)
	}
	c.stop = context.AfterFunc(ctx, func() { conn.Close() })
	return c, nil
}

func (w *wire) dial(ctx context.Context, u *url.URL) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	port := u.Port()
	if u.Scheme == "http" {
		if port == "" {
			port = "80"
		}
		return new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	}
	if port == "" {
		port = "443"
	}
	cfg := w.tls.Clone()
	if cfg == nil {
		cfg = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	cfg.NextProtos = []string{"http/1.1"}
	return (&tls.Dialer{Config: cfg}).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
}

// write sends all but the last held bytes of the request. That a server has
// closed the connection early shows in its response.
func (c *call) write(held int) {
	n := max(len(c.rest)-held, 0)
	_, _ = c.conn.Write(c.rest[:n])
	c.rest = c.rest[n:]
	c.began = time.Now()
}

// hangUp closes the connection, whatever is still to be sent or read.
func (c *call) hangUp() {
	c.stop()
	c.conn.Close()
}

// response reads the response and closes the connection.
func (c *call) response() response {
	defer c.hangUp()
	a, err := readResponse(c.conn, c.shot.method)
	if err != nil {
		a = noResponse(err, c.wire.timeout)
	}
	a.took = time.Since(c.began)
	return a
}

// exchange is what a report shows of the call.
func (c *call) exchange(note string, a response) Exchange {
	e := Exchange{Note: note, Request: c.wire.censor.message(c.head, c.shot.body)}
	if a.status != 0 {
		e.Response = c.wire.censor.message(a.head, a.body)
	}
	return e
}
