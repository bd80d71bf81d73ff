package httponce_test

import (
	"bytes"
	"crypto/sha256"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/internal/processortime"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// A discard is a ResponseWriter that costs nothing.
type discard struct{ h http.Header }

func (d *discard) Header() http.Header         { return d.h }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}

// A minimal middleware is the least that replays responses: it compares the SHA-256 of the
// bodies, captures the response and keeps it in a map. It has no store, no lease and no limit.
type minimal struct {
	handler http.Handler
	records map[string]*minimalRecord
}

type minimalRecord struct {
	fingerprint [sha256.Size]byte
	status      int
	header      http.Header
	body        []byte
}

func (m *minimal) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	key, fingerprint := r.Header.Get("Idempotency-Key"), sha256.Sum256(body)
	seen := m.records[key]
	if seen == nil {
		seen = &minimalRecord{fingerprint: fingerprint, header: http.Header{}}
		again := *r
		again.Body = io.NopCloser(bytes.NewReader(body))
		m.handler.ServeHTTP(seen, &again)
		m.records[key] = seen
	} else if seen.fingerprint != fingerprint {
		http.Error(w, "the key was used for another request", http.StatusUnprocessableEntity)
		return
	}
	for name, values := range seen.header {
		w.Header()[name] = values
	}
	w.WriteHeader(seen.status)
	_, _ = w.Write(seen.body)
}

func (m *minimalRecord) Header() http.Header    { return m.header }
func (m *minimalRecord) WriteHeader(status int) { m.status = status }
func (m *minimalRecord) Write(p []byte) (int, error) {
	m.body = append(m.body, p...)
	return len(p), nil
}

// A sender sends the same 1 KiB request again and again.
type sender struct {
	w    discard
	r    http.Request
	body bytes.Reader
	data []byte
	key  []string
}

func newSender(size int) *sender {
	s := &sender{w: discard{http.Header{}}, data: bytes.Repeat([]byte("x"), size), key: []string{"k"}}
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
// in Wrap and in minimal middleware, for new keys and for repeats, and with 100 KiB each.
func BenchmarkWrap(b *testing.B) {
	benchmarkWrap(b, 1<<10)
	b.Run("100KiB", func(b *testing.B) { benchmarkWrap(b, 100<<10) })
}

func benchmarkWrap(b *testing.B, size int) {
	answer := bytes.Repeat([]byte("y"), size)
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
		s := newSender(size)
		measure(b, func(int) { s.send(bare) })
	})
	b.Run("minimal/first", func(b *testing.B) {
		s, h := newSender(size), &minimal{bare, make(map[string]*minimalRecord)}
		measure(b, func(i int) {
			s.key[0] = keys[i%len(keys)]
			delete(h.records, s.key[0])
			s.send(h)
		})
	})
	b.Run("minimal/replay", func(b *testing.B) {
		s, h := newSender(size), &minimal{bare, make(map[string]*minimalRecord)}
		s.send(h)
		measure(b, func(int) { s.send(h) })
	})
	b.Run("first", func(b *testing.B) {
		s, h := newSender(size), wrap(time.Millisecond)
		measure(b, func(i int) {
			s.key[0] = keys[i%len(keys)]
			s.send(h)
		})
	})
	b.Run("replay", func(b *testing.B) {
		s, h := newSender(size), wrap(time.Hour)
		s.send(h)
		measure(b, func(int) { s.send(h) })
	})
}

// measure calls f with 0, 1 and so on, and also reports the processor time of the whole process,
// with that of the garbage collector, if the system says how much it was.
func measure(b *testing.B, f func(i int)) {
	b.ReportAllocs()
	before, err := processortime.Of(os.Getpid())
	for i := 0; b.Loop(); i++ {
		f(i)
	}
	if err != nil {
		return
	}
	after, err := processortime.Of(os.Getpid())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64((after-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
}
