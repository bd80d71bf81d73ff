package httponce_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A line is an http.RoundTripper that responds to each attempt as it is told, the
// last one again and again, and records the requests.
type line struct {
	answers []func(*http.Request) (*http.Response, error)
	mu      sync.Mutex
	sent    []*http.Request
	bodies  []string
	at      []time.Time
	open    atomic.Int32 // bodies of responses that are not closed
}

func (l *line) RoundTrip(r *http.Request) (*http.Response, error) {
	body := ""
	if r.Body != nil {
		data, _ := io.ReadAll(r.Body)
		_ = r.Body.Close()
		body = string(data)
	}
	l.mu.Lock()
	l.sent, l.bodies, l.at = append(l.sent, r), append(l.bodies, body), append(l.at, time.Now())
	answer := l.answers[min(len(l.sent), len(l.answers))-1]
	l.mu.Unlock()
	w, err := answer(r)
	if w != nil {
		l.open.Add(1)
		w.Body = &counted{ReadCloser: w.Body, open: &l.open}
	}
	return w, err
}

type counted struct {
	io.ReadCloser
	open *atomic.Int32
	once sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.ReadCloser.Close()
}

// says makes a response; fields are names and values of its header.
func says(status int, body string, fields ...string) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) {
		w := &http.Response{StatusCode: status, Header: http.Header{}, ContentLength: int64(len(body)), Body: io.NopCloser(strings.NewReader(body))}
		for i := 0; i < len(fields); i += 2 {
			w.Header.Set(fields[i], fields[i+1])
		}
		return w, nil
	}
}

// fails makes an attempt without a response.
func fails(err error) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) { return nil, err }
}

// breaks makes a response whose body ends too early.
func breaks(status int, body string, announced int64) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		w, _ := says(status, body)(r)
		w.Body = io.NopCloser(io.MultiReader(w.Body, cut{}))
		w.ContentLength = announced
		return w, nil
	}
}

// endsEarly makes a response that ends too early without saying so.
func endsEarly(r *http.Request) (*http.Response, error) {
	w, _ := says(201, "ma")(r)
	w.ContentLength = 4
	return w, nil
}

type cut struct{}

func (cut) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// waits makes an attempt that hangs until its context ends.
func waits(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func sequence(answers ...func(*http.Request) (*http.Response, error)) *line {
	return &line{answers: answers}
}

func newPost(t *testing.T, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://shop.example/orders", body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var (
	created    = says(201, "made", "Idempotency-Expires", "later")
	errDropped = errors.New("connection reset by peer")
)
