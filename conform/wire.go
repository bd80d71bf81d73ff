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

// A request is one HTTP request.
type request struct {
	method    string
	url       string
	header    http.Header
	keyHeader string   // the name of the key's header
	keys      []string // its lines, each sent as it is
	body      []byte
}

// head returns the request's bytes up to its body.
func (s request) head(u *url.URL) []byte {
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
		b.WriteString(s.keyHeader + ": " + key + "\r\n")
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

// A client sends requests to one server, each on its own connection and byte for byte as
// written.
type client struct {
	tls      *tls.Config
	timeout  time.Duration // of a request
	budget   int           // the number of requests that may still be sent
	sent     int
	redactor *redactor
}

// A call is a request on its connection.
type call struct {
	client       *client
	request      request
	conn         net.Conn
	head         []byte
	unsent       []byte // the bytes that have not been written yet
	began        time.Time
	stopWatching func() bool
}

// open connects to the server. An error means that the target can't be reached.
func (w *client) open(ctx context.Context, s request) (*call, error) {
	if w.budget == 0 {
		return nil, fmt.Errorf("the limit of %d requests is reached: the API responds with 429 too often", w.sent)
	}
	w.budget--
	w.sent++
	u, err := url.Parse(s.url)
	if err != nil {
		return nil, err
	}
	conn, err := w.dial(ctx, u)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	c := &call{client: w, request: s, conn: conn, head: s.head(u)}
	c.unsent = append(bytes.Clone(c.head), s.body...)
	if err := conn.SetDeadline(time.Now().Add(w.timeout)); err != nil {
		conn.Close()
		return nil, fmt.Errorf("connect: %w", err)
	}
	c.stopWatching = context.AfterFunc(ctx, func() { conn.Close() })
	return c, nil
}

func (w *client) dial(ctx context.Context, u *url.URL) (net.Conn, error) {
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

// write sends all but the last held bytes of the request. It ignores errors: if the server
// has closed the connection early, response reports it.
func (c *call) write(held int) {
	n := max(len(c.unsent)-held, 0)
	_, _ = c.conn.Write(c.unsent[:n])
	c.unsent = c.unsent[n:]
	c.began = time.Now()
}

// close closes the connection, even if the request or its response is incomplete.
func (c *call) close() {
	c.stopWatching()
	c.conn.Close()
}

// response reads the response and closes the connection.
func (c *call) response() response {
	defer c.close()
	a, err := readResponse(c.conn, c.request.method)
	if err != nil {
		a = noResponse(err, c.client.timeout)
	}
	a.duration = time.Since(c.began)
	return a
}

// exchange returns the call as a report shows it.
func (c *call) exchange(note string, a response) Exchange {
	e := Exchange{Note: note, Request: c.client.redactor.redactMessage(c.head, c.request.body)}
	if a.status != 0 {
		e.Response = c.client.redactor.redactMessage(a.head, a.body)
	}
	return e
}
