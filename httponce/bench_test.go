package httponce_test

import (
	"bytes"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// A discard is a ResponseWriter that costs nothing.
type discard struct{ h http.Header }

func (d *discard) Header() http.Header         { return d.h }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}

// A sender sends the same 1 KiB request again and again.
type sender struct {
	w    discard
	r    http.Request
	body bytes.Reader
	data []byte
	key  []string
}

func newSender() *sender {
	s := &sender{w: discard{http.Header{}}, data: bytes.Repeat([]byte("x"), 1024), key: []string{"k"}}
	s.r = http.Request{
		Method: http.MethodPost, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		URL: &url.URL{Path: "/v1/orders"}, Pattern: "POST /v1/orders", ContentLength: int64(len(s.data)),
		Header: http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": s.key},
		Body:   io.NopCloser(&s.body),
	}
	return s
}

func (s *sender) send(h http.Handler) {
	clear(s.w.h)
	s.body.Reset(s.data)
	h.ServeHTTP(&s.w, &s.r)
}

// BenchmarkWrap compares a handler that reads 1 KiB and responds with 1 KiB with the same
// in Wrap, for new keys and for repeats.
func BenchmarkWrap(b *testing.B) {
	answer := bytes.Repeat([]byte("y"), 1024)
	bare := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		w.Write(answer)
	})
	wrap := func(keep time.Duration) http.Handler {
		g := onlyonce.New(memstore.New(memstore.Config{MaxBytes: 1 << 40}), onlyonce.Config{Keep: keep})
		return httponce.Wrap(g, bare, httponce.Config{
			Tenant: func(*http.Request) string { return "acme" }, MaxNewKeys: math.MaxInt, MaxStored: math.MaxInt64 / 4, // no limit is to be measured
		})
	}
	keys := make([]string, 1<<12) // more, and longer kept, would measure the garbage collector
	for i := range keys {
		keys[i] = strconv.Itoa(i)
	}
	b.Run("bare", func(b *testing.B) {
		s := newSender()
		b.ReportAllocs()
		for b.Loop() {
			s.send(bare)
		}
	})
	b.Run("first", func(b *testing.B) {
		s, h := newSender(), wrap(time.Millisecond)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			s.key[0] = keys[i%len(keys)]
			s.send(h)
		}
	})
	b.Run("replay", func(b *testing.B) {
		s, h := newSender(), wrap(time.Hour)
		s.send(h)
		b.ReportAllocs()
		for b.Loop() {
			s.send(h)
		}
	})
}
