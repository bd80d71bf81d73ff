package proxy_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce/proxy"
)

func TestOfWhatAnHTTP2ClientSendsUnreadLittleIsKept(t *testing.T) {
	h2 := proxy.Server(http.NotFoundHandler()).HTTP2
	if h2.MaxReceiveBufferPerConnection != 64<<10 || h2.MaxReceiveBufferPerStream > 64<<10 {
		t.Errorf("%+v", h2)
	}
}

// A pipe is a listener of one connection in memory.
type pipe struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p *pipe) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipe) Close() error   { close(p.closed); return nil }
func (p *pipe) Addr() net.Addr { return &net.TCPAddr{} }

// overHTTP2 returns a client of h that keeps 64 KiB of an answer that nobody reads.
func overHTTP2(t *testing.T, h http.Handler) *http.Client {
	l := &pipe{make(chan net.Conn), make(chan struct{})}
	s := proxy.Server(h)
	go s.Serve(proxy.Listen(l, nil))
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{
		Protocols: protocols, HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10},
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			l.conns <- theirs
			return ours, nil
		},
	}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		s.Close()
	})
	return &http.Client{Transport: transport}
}

func TestByHTTP2AClientThatTakesNothingOfItsAnswerEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		client := overHTTP2(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/short" {
				return
			}
			_, err := w.Write(make([]byte, 1<<20))
			ended <- err
		}))
		res, err := client.Get("http://proxy/long")
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(ended) > 0 {
			t.Fatalf("all was taken: %v", <-ended)
		}
		for range 10 { // beside it, the connection has its answers
			short, err := client.Get("http://proxy/short")
			if err != nil {
				t.Fatal(err)
			}
			short.Body.Close()
			time.Sleep(10 * time.Second)
		}
		select {
		case err := <-ended:
			if err == nil {
				t.Error("all was written")
			}
		default:
			t.Error("it is still being written")
		}
		if n, err := io.Copy(io.Discard, res.Body); err == nil || n >= 1<<20 {
			t.Errorf("the client has %d bytes: %v", n, err)
		}
		res.Body.Close()
	})
}

func TestByHTTP2AnAnswerThatPausesGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := overHTTP2(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for range 5 {
				io.WriteString(w, "event\n")
				http.NewResponseController(w).Flush()
				time.Sleep(time.Hour)
			}
			w.Write(bytes.Repeat([]byte("x"), 1<<20))
		}))
		res, err := client.Get("http://proxy/")
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(res.Body); err != nil || len(b) != 5*len("event\n")+1<<20 {
			t.Errorf("%d bytes: %v", len(b), err)
		}
		res.Body.Close()
	})
}
