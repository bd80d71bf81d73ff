package httponce_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce/httponce"
)

// gaps returns how long was waited before each attempt but the first.
func (l *line) gaps() (gaps []time.Duration) {
	for i := range l.at[1:] {
		gaps = append(gaps, l.at[i+1].Sub(l.at[i]))
	}
	return gaps
}

func TestTransport_RetryAfterIsHonouredInSecondsAndAsADate(t *testing.T) {
	at := func(d time.Duration, layout string) string { return time.Now().UTC().Add(d).Format(layout) }
	for name, c := range map[string]struct {
		after func() string
		date  func() string
		want  time.Duration
	}{
		"seconds":           {after: func() string { return "7" }, want: 7 * time.Second},
		"a date":            {after: func() string { return at(7*time.Second, http.TimeFormat) }, want: 7 * time.Second},
		"an obsolete date":  {after: func() string { return at(7*time.Second, time.ANSIC) }, want: 7 * time.Second},
		"the server's date": {func() string { return at(time.Hour+7*time.Second, http.TimeFormat) }, func() string { return at(time.Hour, http.TimeFormat) }, 7 * time.Second},
	} {
		for _, status := range []int{409, 425, 429, 502, 503, 504} {
			synctest.Test(t, func(t *testing.T) {
				fields := []string{"Retry-After", c.after()}
				if c.date != nil {
					fields = append(fields, "Date", c.date())
				}
				l := sequence(says(status, "", fields...), created)
				_, err := (&httponce.Transport{Base: l}).RoundTrip(newPost(t, nil))
				if err != nil || len(l.sent) != 2 {
					t.Fatalf("%s, %d: %v, and sent %d times", name, status, err, len(l.sent))
				}
				if waited := l.gaps()[0]; waited < c.want || waited > c.want+c.want/10 {
					t.Errorf("%s, %d: waited %v, and was asked for %v", name, status, waited, c.want)
				}
			})
		}
	}
}

func TestTransport_ARetryAfterThatSaysNothingLeavesTheBackoff(t *testing.T) {
	for _, after := range []string{"", "0", "soon", "-1", "1.5", "1 s", "Sat, 01 Jan 2000 00:00:00 GMT", "²"} {
		synctest.Test(t, func(t *testing.T) {
			l := sequence(says(503, "", "Retry-After", after), created)
			if _, err := (&httponce.Transport{Base: l, Backoff: 10 * time.Millisecond}).RoundTrip(newPost(t, nil)); err != nil || len(l.sent) != 2 {
				t.Fatalf("%q: %v, and sent %d times", after, err, len(l.sent))
			}
			if waited := l.gaps()[0]; waited > 10*time.Millisecond {
				t.Errorf("%q: waited %v", after, waited)
			}
		})
	}
}

func TestTransport_TheBackoffDoublesUpToItsMostWithFullJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		most := []time.Duration{100, 200, 400, 800, 1000, 1000} // milliseconds
		low, high := make([]bool, len(most)), make([]bool, len(most))
		for range 100 {
			l := sequence(fails(errDropped))
			_, _ = (&httponce.Transport{Base: l, Backoff: 100 * time.Millisecond, MaxBackoff: time.Second, MaxAttempts: len(most) + 1}).RoundTrip(newPost(t, nil))
			for i, gap := range l.gaps() {
				bound := most[i] * time.Millisecond
				if gap > bound {
					t.Fatalf("before attempt %d it waited %v", i+2, gap)
				}
				low[i], high[i] = low[i] || gap < bound/4, high[i] || gap > bound*3/4
			}
		}
		for i := range most {
			if !low[i] || !high[i] {
				t.Errorf("the waits before attempt %d are not spread", i+2)
			}
		}
	})
}

func TestTransport_TheBackoffStaysAtItsMostForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := sequence(fails(errDropped))
		_, _ = (&httponce.Transport{Base: l, MaxBackoff: time.Millisecond, MaxAttempts: 100}).RoundTrip(newPost(t, nil))
		if len(l.sent) != 100 || slices.Max(l.gaps()) > time.Millisecond {
			t.Errorf("sent %d times, after up to %v", len(l.sent), slices.Max(l.gaps()))
		}
	})
}

func TestTransport_TheBudgetEndsTheCall(t *testing.T) {
	busy := says(503, "later", "Retry-After", "10")
	for name, c := range map[string]struct {
		transport httponce.Transport
		deadline  time.Duration
		sent      int
	}{
		"the default number":        {httponce.Transport{Budget: time.Hour}, 0, 10},
		"a number":                  {httponce.Transport{MaxAttempts: 3}, 0, 3},
		"the default time":          {httponce.Transport{}, 0, 6},
		"a time":                    {httponce.Transport{Budget: 25 * time.Second}, 0, 3},
		"less than the first wait":  {httponce.Transport{Budget: 9 * time.Second}, 0, 1},
		"the context's deadline":    {httponce.Transport{}, 25 * time.Second, 3},
		"no more than one attempt":  {httponce.Transport{MaxAttempts: 1}, 0, 1},
		"a time beyond all numbers": {httponce.Transport{Budget: 1 << 62, MaxAttempts: 12}, 0, 12},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newPost(t, nil)
				if c.deadline > 0 {
					ctx, cancel := context.WithTimeout(t.Context(), c.deadline)
					defer cancel()
					r = r.WithContext(ctx)
				}
				l := sequence(busy)
				c.transport.Base = l
				w, err := c.transport.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(w.Body)
				_ = w.Body.Close()
				if w.StatusCode != 503 || string(body) != "later" || err != nil || len(l.sent) != c.sent {
					t.Errorf("sent %d times, want %d; the last response is %d %q", len(l.sent), c.sent, w.StatusCode, body)
				}
				if last := l.at[len(l.at)-1]; !time.Now().Equal(last) {
					t.Errorf("after the last attempt it waited for %v", time.Since(last))
				}
				if l.open.Load() != 0 {
					t.Error("a discarded answer was not closed")
				}
			})
		})
	}
}

func TestTransport_ALongRetryAfterReturnsTheResponseAtOnce(t *testing.T) {
	for _, after := range []string{"3600", "9223372036", "99999999999999999999", "Fri, 31 Dec 9999 23:59:59 GMT"} {
		synctest.Test(t, func(t *testing.T) {
			l := sequence(says(429, "", "Retry-After", after), created)
			w, err := (&httponce.Transport{Base: l}).RoundTrip(newPost(t, nil))
			if err != nil || w.StatusCode != 429 || !time.Now().Equal(l.at[0]) {
				t.Errorf("%s: %v, after %v", after, err, time.Since(l.at[0]))
			}
		})
	}
}

func TestTransport_TheLastErrorSaysTheKeyAndHowOftenItWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := sequence(fails(errors.New("no route")), says(503, ""), fails(errDropped))
		_, err := (&http.Client{Transport: &httponce.Transport{Base: l, MaxAttempts: 4}}).Do(newPost(t, nil))
		var none *httponce.NoResponseError
		if !errors.As(err, &none) {
			t.Fatal(err)
		}
		if none.Attempts != 4 || none.Key != l.sent[0].Header.Get("Idempotency-Key") || !errors.Is(err, errDropped) || none.Timeout() ||
			!strings.Contains(err.Error(), "no response after 4 attempts: connection reset by peer") {
			t.Errorf("%v, with %+v", err, none)
		}
	})
}

func TestTransport_ACancelledCallEndsAtOnce(t *testing.T) {
	for name, answer := range map[string]func(*http.Request) (*http.Response, error){
		"while it waits":           says(503, "", "Retry-After", "5"),
		"while it is under way":    waits,
		"while its response comes": slowResponse,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gaveUp := errors.New("the user left")
				ctx, cancel := context.WithCancelCause(t.Context())
				l := sequence(answer)
				began := time.Now()
				time.AfterFunc(time.Second, func() { cancel(gaveUp) })
				w, err := (&httponce.Transport{Base: l}).RoundTrip(newPost(t, nil).WithContext(ctx))
				if err == nil {
					_, err = io.ReadAll(w.Body)
					_ = w.Body.Close()
				}
				if !errors.Is(err, gaveUp) || len(l.sent) != 1 || time.Since(began) != time.Second || l.open.Load() != 0 {
					t.Errorf("%v, after %v and %d attempts; %d bodies are open", err, time.Since(began), len(l.sent), l.open.Load())
				}
			})
		})
	}
}

// slowResponse has a body that does not come.
func slowResponse(r *http.Request) (*http.Response, error) {
	w, _ := says(200, "")(r)
	w.ContentLength, w.Body = 4, io.NopCloser(stuck{r.Context()})
	return w, nil
}

// stuck is read until its context ends.
type stuck struct{ ctx context.Context }

func (s stuck) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, context.Cause(s.ctx)
}

func TestTransport_ASwitchOfProtocolsKeepsItsConnection(t *testing.T) {
	l := sequence(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 101, Body: duplex{}}, nil
	})
	base := roundTrip(func(r *http.Request) (*http.Response, error) { return l.answers[0](r) })
	w, err := (&httponce.Transport{Base: base}).RoundTrip(newPost(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := w.Body.(io.Writer); !ok {
		t.Error("the connection can't be written to")
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

type duplex struct{ io.ReadWriteCloser }

func TestTransport_IdleConnectionsAreClosedThroughIt(t *testing.T) {
	base := &idler{}
	(&http.Client{Transport: &httponce.Transport{Base: base}}).CloseIdleConnections()
	if !base.closed {
		t.Error("they were not")
	}
	(&http.Client{Transport: &httponce.Transport{Base: sequence()}}).CloseIdleConnections()
}

type idler struct {
	line
	closed bool
}

func (i *idler) CloseIdleConnections() { i.closed = true }
