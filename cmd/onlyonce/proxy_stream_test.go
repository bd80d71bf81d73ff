package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
)

// newStreamer is a server that streams in every way, over HTTP/1 and HTTP/2 in
// clear text. Each step waits until the client has said next.
func newStreamer(t *testing.T) (s *httptest.Server, next chan struct{}) {
	t.Helper()
	next = make(chan struct{})
	step := func(r *http.Request) {
		select {
		case <-next:
		case <-r.Context().Done():
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for n := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", n)
			_ = http.NewResponseController(w).Flush()
			step(r)
		}
	})
	mux.HandleFunc("GET /socket", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "websocket" || r.Header.Get("Sec-Websocket-Key") == "" {
			http.Error(w, "no upgrade", http.StatusUpgradeRequired)
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello\n")
		_, _ = io.Copy(conn, rw) // an echo
	})
	mux.HandleFunc("POST /service/Call", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		w.Header().Set("X-Proto", r.Proto)
		_ = http.NewResponseController(w).Flush()
		in := bufio.NewReader(r.Body)
		for {
			line, err := in.ReadString('\n') // message by message, while the request goes on
			if err != nil {
				break
			}
			_, _ = io.WriteString(w, "echo "+line)
			_ = http.NewResponseController(w).Flush()
		}
		w.Header().Set("Grpc-Status", "0")
		w.Header().Set(http.TrailerPrefix+"Grpc-Message", "not announced")
	})
	s = httptest.NewUnstartedServer(mux)
	s.Config.Protocols = clearProtocols()
	s.Start()
	t.Cleanup(s.Close)
	return s, next
}

func clearProtocols() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	return p
}

// http2Client speaks HTTP/2 in clear text only.
func http2Client() *http.Client {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: &http.Transport{Protocols: p}}
}

// streaming ends a test that waits for something in vain.
func streaming(t *testing.T, method, url string, body io.Reader) *http.Request {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), cmdtest.Soon)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestProxy_EventsGoThroughOneByOne(t *testing.T) {
	t.Parallel()
	up, next := newStreamer(t)
	s := startProxy(t, up.URL, "--single-tenant")
	for name, client := range map[string]*http.Client{"HTTP/1.1": http.DefaultClient, "HTTP/2": http2Client()} {
		resp, err := client.Do(streaming(t, http.MethodGet, s.url+"/events", nil))
		if err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(resp.Body)
		for n := range 3 {
			line, err := in.ReadString('\n')
			if err != nil || line != fmt.Sprintf("data: %d\n", n) {
				t.Fatalf("%s: %q, %v", name, line, err)
			}
			_, _ = in.ReadString('\n')
			next <- struct{}{}
		}
		if _, err := in.ReadByte(); err != io.EOF || resp.Proto != name && resp.Proto != name+".0" {
			t.Errorf("%s %s: %v", name, resp.Proto, err)
		}
		resp.Body.Close()
	}
}

// upgrade asks for a WebSocket and returns its connection and the response.
func upgrade(t *testing.T, s *served) (net.Conn, *bufio.Reader, *http.Response) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(cmdtest.Soon)); err != nil {
		t.Fatal(err)
	}
	_, err = io.WriteString(conn, "GET /socket HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: a2V5\r\n\r\n")
	if err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	return conn, in, resp
}

func TestProxy_AWebSocketGoesThroughUnlessItIsTurnedOff(t *testing.T) {
	t.Parallel()
	up, _ := newStreamer(t)
	s := startProxy(t, up.URL, "--single-tenant")
	conn, in, resp := upgrade(t, s)
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%s", resp.Status)
	}
	for _, text := range []string{"hello\n", "ping\n", "\x00\xff\r\n\r\n"} {
		if text != "hello\n" {
			if _, err := io.WriteString(conn, text); err != nil {
				t.Fatal(err)
			}
		}
		got := make([]byte, len(text))
		if _, err := io.ReadFull(in, got); err != nil || string(got) != text {
			t.Fatalf("%q, %v", got, err)
		}
	}
	s, _ = startProxyFile(t, up.URL, plainFile+"defaults: {upgrades: false}\n")
	if _, _, resp := upgrade(t, s); resp.StatusCode != http.StatusUpgradeRequired {
		t.Errorf("%s", resp.Status)
	}
}

func TestProxy_ACallLikeGRPCGoesBothWaysAtOnceWithTrailers(t *testing.T) {
	t.Parallel()
	up, _ := newStreamer(t)
	s := startProxy(t, up.URL, "--single-tenant")
	out, in := io.Pipe()
	r := streaming(t, http.MethodPost, s.url+"/service/Call", out)
	r.Header.Set("Content-Type", "application/grpc")
	r.Header.Set("Te", "trailers")
	resp, err := http2Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.Header.Get("X-Proto") != "HTTP/2.0" || resp.ProtoMajor != 2 {
		t.Errorf("%s to the proxy, %s to the upstream", resp.Proto, resp.Header.Get("X-Proto"))
	}
	lines := bufio.NewReader(resp.Body)
	for n := range 3 {
		if _, err := fmt.Fprintf(in, "message %d\n", n); err != nil {
			t.Fatal(err)
		}
		if line, err := lines.ReadString('\n'); err != nil || line != fmt.Sprintf("echo message %d\n", n) {
			t.Fatalf("%q, %v", line, err)
		}
	}
	in.Close()
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v", rest, err)
	}
	if resp.Trailer.Get("Grpc-Status") != "0" || resp.Trailer.Get("Grpc-Message") != "not announced" {
		t.Errorf("trailers %v", resp.Trailer)
	}
}

func TestProxy_AKeyedRequestOverHTTP2IsReplayedOverHTTP1(t *testing.T) {
	t.Parallel()
	up := newUpstreamServer(t)
	s := startProxy(t, up.URL, "--single-tenant")
	r := streaming(t, http.MethodPost, s.url+"/things", strings.NewReader("a"))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", "k")
	resp, err := http2Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.ProtoMajor != 2 || string(body) != "run 1 of a" {
		t.Errorf("%s %q, %v", resp.Proto, body, err)
	}
	if got := s.send("k", "a"); got.body != string(body) || got.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("%+v", got)
	}
}

func TestProxy_AnUpstreamMaySpeakOnlyHTTP2(t *testing.T) {
	t.Parallel()
	up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Proto)
	}))
	up.Config.Protocols = new(http.Protocols)
	up.Config.Protocols.SetUnencryptedHTTP2(true)
	up.Start()
	defer up.Close()
	s, _ := startProxyFile(t, up.URL, "tenant: {single: true}\nupstreams: [{url: UP, http2: true}]\n")
	if got := s.send("k", "a"); got.body != "HTTP/2.0" {
		t.Errorf("with a key: %+v", got)
	}
	if got := s.get("/"); got.body != "HTTP/2.0" {
		t.Errorf("without one: %+v", got)
	}
}
