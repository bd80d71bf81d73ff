package proxy

import (
	"context"
	"io"
	"net"
	"net/url"
	"testing"
	"time"
)

// A connection whose sending half is closed looks alive, and takes no byte.
func TestWhatAConnectionDoesNotTakeIsSentOnAnother(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := make(chan string)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				b := make([]byte, 100)
				n, _ := c.Read(b)
				got <- string(b[:n])
			}()
		}
	}()
	up := newLink(&Upstream{URL: &url.URL{Scheme: "http", Host: l.Addr().String()}, KeepIdle: time.Minute})
	first, err := up.dial(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	<-got
	first.owner = "tenant"
	up.pool.put(first)
	second, sent, err := up.write(context.Background(), []byte("request"), "tenant")
	if err != nil || !sent || second == first {
		t.Fatal(sent, err)
	}
	defer second.Close()
	if request := <-got; request != "request" {
		t.Errorf("%q", request)
	}
	l.Close()
	if err := second.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	up.pool.put(second)
	if _, sent, err := up.write(context.Background(), []byte("request"), "tenant"); err == nil || sent {
		t.Errorf("without a server: sent %v, %v", sent, err)
	}
}

// partial is a connection that breaks after the first byte.
type partial struct{ spoken }

func (*partial) Write([]byte) (int, error)        { return 1, io.ErrClosedPipe }
func (*partial) SetWriteDeadline(time.Time) error { return nil }

func TestOneByteIsEnoughToHaveBeenSent(t *testing.T) {
	c := &conn{Conn: &partial{}}
	if sent, err := c.write([]byte("request"), time.Second); !sent || err == nil {
		t.Errorf("sent %v, %v", sent, err)
	}
}
