package httponce_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce/httponce"
)

func TestTransport_TheRequestIsNotChangedAndItsBodyIsClosed(t *testing.T) {
	failing := errors.New("out of paper")
	for name, transport := range map[string]*httponce.Transport{
		"sent":            {Base: sequence(created)},
		"never answered":  {Base: sequence(fails(errDropped)), MaxAttempts: 1},
		"not persisted":   {Base: sequence(created), Persist: func(context.Context, *http.Request, string) error { return failing }},
		"too long":        {Base: sequence(created), MaxBody: 2},
		"nonsense":        {Base: sequence(created), MaxAttempts: -1},
		"a method passed": {Base: sequence(created), Methods: []string{}},
	} {
		for _, repeatable := range []bool{false, true} {
			body := &closing{Reader: strings.NewReader("tea")}
			r := newPost(t, body)
			if repeatable {
				r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("tea")), nil }
			}
			_, _ = transport.RoundTrip(r)
			if !body.closed.Load() || len(r.Header) > 0 || r.Body != body || r.ContentLength != 0 || repeatable != (r.GetBody != nil) {
				t.Errorf("%s, repeatable %v: closed %v, and the request is now %+v", name, repeatable, body.closed.Load(), r)
			}
		}
	}
}

type closing struct {
	io.Reader
	closed atomic.Bool
}

func (c *closing) Close() error { c.closed.Store(true); return nil }

func TestTransport_ABodyThatCannotBeSentTwiceIsRejectedBeforeItIsSent(t *testing.T) {
	for name, c := range map[string]struct {
		body   io.Reader
		length int64
		says   string
	}{
		"too long":              {io.MultiReader(strings.NewReader("black tea")), -1, "set Request.GetBody, or a higher Transport.MaxBody"},
		"said to be too long":   {cut{}, 9, "longer than 8 bytes"},
		"longer than announced": {io.MultiReader(strings.NewReader("tea")), 2, "ContentLength is 2, and the body has 3 bytes"},
		"unreadable":            {cut{}, -1, "nothing was sent: unexpected EOF"},
	} {
		l := sequence(created)
		r := newPost(t, c.body)
		r.ContentLength = c.length
		_, err := (&httponce.Transport{Base: l, MaxBody: 8}).RoundTrip(r)
		if err == nil || !strings.Contains(err.Error(), c.says) || len(l.sent) != 0 || errors.As(err, new(*httponce.NoResponseError)) {
			t.Errorf("%s: %v, and sent %d times", name, err, len(l.sent))
		}
	}
}

func TestTransport_ABodyThatNeverComesEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipe, _ := io.Pipe()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		l := sequence(created)
		_, err := (&httponce.Transport{Base: l}).RoundTrip(newPost(t, pipe).WithContext(ctx))
		if !errors.Is(err, context.DeadlineExceeded) || len(l.sent) != 0 {
			t.Errorf("%v, and sent %d times", err, len(l.sent))
		}
	})
}

func TestTransport_AnEmptyBodyAndTrailersAreSentAsSuch(t *testing.T) {
	l := sequence(created)
	transport := &httponce.Transport{Base: l}
	if _, err := transport.RoundTrip(newPost(t, io.MultiReader())); err != nil || l.sent[0].Body != http.NoBody || l.sent[0].ContentLength != 0 {
		t.Errorf("%v: an empty body was sent as %v", err, l.sent[0].Body)
	}
	r := newPost(t, io.MultiReader(strings.NewReader("tea")))
	r.ContentLength, r.Trailer = -1, http.Header{"Sum": nil}
	r.Body = io.NopCloser(io.MultiReader(strings.NewReader("tea"), atEnd(func() { r.Trailer.Set("Sum", "1") })))
	if _, err := transport.RoundTrip(r); err != nil || l.sent[1].ContentLength != -1 || l.bodies[1] != "tea" || l.sent[1].Trailer.Get("Sum") != "1" {
		t.Errorf("%v: with a trailer, %d bytes are announced", err, l.sent[1].ContentLength)
	}
}

func TestTransport_ABodyThatCannotBeHadAgainEndsTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := sequence(fails(errDropped))
		r := newPost(t, strings.NewReader("tea"))
		r.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("the file is gone") }
		_, err := (&httponce.Transport{Base: l}).RoundTrip(r)
		if err == nil || !strings.Contains(err.Error(), "after 1 attempt: httponce: get the request's body again: the file is gone") {
			t.Error(err)
		}
	})
}

// atEnd is an empty body that does something when it is read.
type atEnd func()

func (f atEnd) Read([]byte) (int, error) { f(); return 0, io.EOF }
