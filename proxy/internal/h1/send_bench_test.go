package h1

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// BenchmarkSend sends one request after another, by a Client and by http.Transport.
func BenchmarkSend(b *testing.B) {
	response := bytes.Repeat([]byte("a"), 200)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = w.Write(response)
	}))
	defer server.Close()
	body := bytes.Repeat([]byte("b"), 200)
	b.Run("Client", func(b *testing.B) {
		b.ReportAllocs()
		c := NewClient(Config{Address: server.Listener.Addr().String(), DialTimeout: time.Minute, StallTimeout: time.Minute, MaxIdle: 1, KeepIdle: time.Minute})
		defer c.Retire()
		for b.Loop() {
			q := NewRequest("POST", "/orders")
			q.Field("Host", "localhost")
			q.Field("Content-Type", "application/json")
			if err := q.Body(bytes.NewReader(body), int64(len(body))); err != nil {
				b.Fatal(err)
			}
			r, _, err := c.Send(context.Background(), q, nil, "tenant")
			if err != nil {
				b.Fatal(err)
			}
			if err := r.Body(func([]byte) bool { return true }); err != nil {
				b.Fatal(err)
			}
			r.Release()
			q.Release()
		}
	})
	b.Run("Transport", func(b *testing.B) {
		b.ReportAllocs()
		t := &http.Transport{}
		defer t.CloseIdleConnections()
		for b.Loop() {
			r, err := http.NewRequest("POST", server.URL+"/orders", bytes.NewReader(body))
			if err != nil {
				b.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/json")
			res, err := t.RoundTrip(r)
			if err != nil {
				b.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
	})
}
