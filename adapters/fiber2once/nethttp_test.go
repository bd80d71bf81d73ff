package fiber2once_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gofiber/fiber/v2"
	recoverer "github.com/gofiber/fiber/v2/middleware/recover"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/fiber2once"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/internal/adaptertest"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// streaming serves an app that gives a body to its handlers while it arrives. Its only route
// responds with the body, and the result counts its runs.
func streaming(t *testing.T, cfg httponce.Config) (url string, store *memstore.Store, runs *atomic.Int32) {
	t.Helper()
	store, runs = memstore.New(memstore.Config{}), new(atomic.Int32)
	cfg.Tenant = httponce.SingleTenant
	a := fiber.New(fiber.Config{DisableStartupMessage: true, StreamRequestBody: true})
	a.Use(recoverer.New())
	a.Post("/charges", fiber2once.Middleware(onlyonce.New(store, onlyonce.Config{Observer: onlyonce.DiscardEvents}), cfg), func(c *fiber.Ctx) error {
		runs.Add(1)
		return c.Send(c.Body())
	})
	return listen(t, a), store, runs
}

// exchange sends bytes and then nothing more, and returns all that comes back.
func exchange(t *testing.T, url, request string) string {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// The server may respond before it has all of it, and close the connection.
	_, _ = io.WriteString(c, request)
	_ = c.(*net.TCPConn).CloseWrite()
	got, _ := io.ReadAll(c)
	return string(got)
}

// post sends a keyed POST, and returns the response and its body.
func post(t *testing.T, url, contentType string, body io.Reader) (*http.Response, []byte, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", url+"/charges", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", "k")
	r.Header.Set("Content-Type", contentType)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	return resp, got, err
}

func TestMiddleware_AStreamedRequestBodyIsReadByTheHandlerToo(t *testing.T) {
	url, _, runs := streaming(t, httponce.Config{})
	long := strings.Repeat("long ", 20_000)
	for repeat := range 2 {
		resp, got, err := post(t, url, "text/plain", strings.NewReader(long))
		if err != nil || string(got) != long || (resp.Header.Get("Idempotency-Replayed") == "true") != (repeat > 0) {
			t.Errorf("got %d bytes, %v, %v", len(got), resp, err)
		}
	}
	if runs.Load() != 1 {
		t.Errorf("the handler ran %d times", runs.Load())
	}
}

// fasthttp takes the end of the connection for the end of the body.
func TestMiddleware_AStreamedRequestBodyThatBreaksOffRunsNothing(t *testing.T) {
	url, store, runs := streaming(t, httponce.Config{})
	got := exchange(t, url, "POST /charges HTTP/1.1\r\nHost: shop\r\nIdempotency-Key: k\r\nContent-Length: 20000\r\n\r\n"+strings.Repeat("a", 10_000))
	if !strings.HasPrefix(got, "HTTP/1.1 400 ") || runs.Load() != 0 {
		t.Errorf("the handler ran %d times, the client got %.300q", runs.Load(), got)
	}
	for rec, err := range store.List(t.Context(), onlyonce.Filter{}) {
		t.Errorf("record %+v, %v", rec, err)
	}
}

func TestMiddleware_AStreamedRequestBodyOfUnknownLengthIsRejected(t *testing.T) {
	url, _, runs := streaming(t, httponce.Config{})
	got := exchange(t, url, "POST /charges HTTP/1.1\r\nHost: shop\r\nIdempotency-Key: k\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 411 ") || runs.Load() != 0 {
		t.Errorf("with a key, the handler ran %d times, the client got %.300q", runs.Load(), got)
	}
	got = exchange(t, url, "POST /charges HTTP/1.1\r\nHost: shop\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 200 ") || !strings.HasSuffix(got, "\r\na") || runs.Load() != 1 {
		t.Errorf("without a key, the handler ran %d times, the client got %.300q", runs.Load(), got)
	}
}

// fasthttp takes the space for a part of the name.
func TestMiddleware_AHeaderWithASpaceBeforeItsColonIsRejected(t *testing.T) {
	url, _, runs := streaming(t, httponce.Config{})
	for _, space := range []string{" ", "\t"} {
		got := exchange(t, url, "POST /charges HTTP/1.1\r\nHost: shop\r\nIdempotency-Key"+space+": k\r\nContent-Length: 1\r\n\r\na")
		if !strings.HasPrefix(got, "HTTP/1.1 400 ") || runs.Load() != 0 {
			t.Errorf("with %q, the handler ran %d times, the client got %.300q", space, runs.Load(), got)
		}
	}
}

// fasthttp does not skip the part of a body that nobody has read.
func TestMiddleware_ThePartOfAStreamedRequestBodyThatNobodyReadIsNoRequest(t *testing.T) {
	url, _, runs := streaming(t, httponce.Config{Required: true, MaxBody: 10_000, Operation: func(r *http.Request) string {
		if r.Header.Get("X-Panic") != "" {
			panic("no operation")
		}
		return "charge"
	}})
	hidden := "POST /charges HTTP/1.1\r\nHost: shop\r\nIdempotency-Key: hidden\r\nContent-Length: 1\r\n\r\na"
	for name, header := range map[string]string{"no key": "", "a malformed key": "Idempotency-Key: ä\r\n", "a name with a space": "X-A : b\r\n", "a panic": "Idempotency-Key: p\r\nX-Panic: 1\r\n", "a long body": "Idempotency-Key: k\r\n"} {
		body := strings.Repeat("a", 8<<10) + hidden // fasthttp has read 8 KiB
		if name == "a long body" {
			body = strings.Repeat("a", 10_001) + hidden
		}
		got := exchange(t, url, fmt.Sprintf("POST /charges HTTP/1.1\r\nHost: shop\r\n%sContent-Length: %d\r\n\r\n%s", header, len(body), body))
		if n := strings.Count(got, "HTTP/1.1 "); n > 1 || runs.Load() != 0 { // a reset may have dropped the response
			t.Errorf("%s: the handler ran %d times, the client got %d responses: %.600q", name, runs.Load(), n, got)
		}
	}
}

// fasthttp keeps a form without the order of its fields.
func TestMiddleware_AFormIsTheSameInEveryRepeat(t *testing.T) {
	form := func(last string) (string, io.Reader) {
		var b bytes.Buffer
		w := multipart.NewWriter(&b)
		_ = w.SetBoundary("boundary")
		for _, name := range strings.Fields("amount currency account note order customer address " + last) {
			_ = w.WriteField(name, name+"?")
			file, _ := w.CreateFormFile("file-"+name, name)
			_, _ = io.WriteString(file, name+"!")
		}
		_ = w.Close()
		return w.FormDataContentType(), &b
	}
	a, once, _ := newOnce(httponce.Config{})
	a.Post("/charges", once, func(c *fiber.Ctx) error { return c.SendString(c.FormValue("amount")) })
	url := listen(t, a)
	for repeat := range 4 {
		kind, body := form("city")
		resp, got, err := post(t, url, kind, body)
		if err != nil || resp.StatusCode != 200 || string(got) != "amount?" || (resp.Header.Get("Idempotency-Replayed") == "true") != (repeat > 0) {
			t.Errorf("got %q, %v, %v", got, resp, err)
		}
	}
	kind, body := form("town")
	if resp, got, err := post(t, url, kind, body); err != nil || resp.StatusCode != 422 {
		t.Errorf("another form got %q, %v, %v", got, resp, err)
	}
}

func TestMiddleware_AStreamThatBreaksOffBreaksOffForTheClientToo(t *testing.T) {
	for name, send := range map[string]func(*fiber.Ctx) error{
		"with an error": func(c *fiber.Ctx) error {
			return c.SendStream(io.MultiReader(strings.NewReader("a part"), broken{}))
		},
		"before its announced length": func(c *fiber.Ctx) error { return c.SendStream(strings.NewReader("a part"), 100) },
	} {
		a, once, store := newOnce(httponce.Config{})
		a.Post("/charges", once, send)
		url := listen(t, a)
		if resp, got, err := post(t, url, "text/plain", nil); err == nil {
			t.Errorf("%s: the client takes %q for the whole response: %v", name, got, resp)
		}
		wantState(t, store, "POST /charges", onlyonce.StateUnknown)
	}
}

func TestWrapTx_AStreamThatBreaksOffRollsBack(t *testing.T) {
	store := adaptertest.NewStore()
	a := fiber.New(quiet)
	a.Post("/charges", fiber2once.WrapTx(onlyonce.NewTx(store, onlyonce.Config{Observer: onlyonce.DiscardEvents}), func(c *fiber.Ctx, tx adaptertest.Tx) error {
		tx["order"] = "a"
		return c.SendStream(io.MultiReader(strings.NewReader("a part"), broken{}))
	}, httponce.Config{Tenant: httponce.SingleTenant}))
	if w := serve(a, "/charges"); w.StatusCode() != 500 || strings.Contains(string(w.Body()), "a part") || store.Row("order") != "" {
		t.Errorf("the row is %q, the client got %s", store.Row("order"), w)
	}
}

// losing is a store that takes each lease away before its attempt is settled.
type losing struct{ onlyonce.Store }

func (losing) Settle(context.Context, onlyonce.Hold, onlyonce.Settlement) error {
	return onlyonce.ErrLost
}

// httponce breaks off a long response by a panic, which nothing in fiber recovers.
func TestMiddleware_ALongResponseWhoseLeaseIsLostIsNotSentAndDoesNotEndTheProcess(t *testing.T) {
	guard := onlyonce.New(losing{memstore.New(memstore.Config{})}, onlyonce.Config{Observer: onlyonce.DiscardEvents})
	for longest, name := range map[int]string{3: "long", 0: "short"} {
		a := fiber.New(quiet)
		a.Post("/charges", fiber2once.Middleware(guard, httponce.Config{Tenant: httponce.SingleTenant, MaxResponse: longest, Operation: func(*http.Request) string { return name }}), created)
		w := serve(a, "/charges")
		if w.StatusCode() != 409 || !strings.Contains(string(w.Body()), httponce.CodeInProgress) || w.IsBodyStream() {
			t.Errorf("%s: got %s", name, w)
		}
	}
}
