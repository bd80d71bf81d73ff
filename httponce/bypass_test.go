package httponce_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// A frameworkWriter tells its state, as the ResponseWriters of some frameworks do.
type frameworkWriter struct {
	http.ResponseWriter
	status  int
	written bool
}

func (w *frameworkWriter) Status() int   { return w.status }
func (w *frameworkWriter) Written() bool { return w.written }

func (w *frameworkWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *frameworkWriter) Write(p []byte) (int, error) {
	w.written = true
	return w.ResponseWriter.Write(p)
}

func keyedPost(body string) *http.Request {
	r := httptest.NewRequest("POST", "/charges", strings.NewReader(body))
	r.Header.Set("Idempotency-Key", "k")
	return r
}

func TestBypass_AHandlerThatWritesPastTheLayerPanicsAndItsOutcomeIsUnknown(t *testing.T) {
	for name, write := range map[string]func(outer http.ResponseWriter){
		"a body":   func(outer http.ResponseWriter) { fmt.Fprint(outer, "charged") },
		"a status": func(outer http.ResponseWriter) { outer.WriteHeader(http.StatusNoContent) },
	} {
		t.Run(name, func(t *testing.T) {
			store := memstore.New(memstore.Config{})
			outer := &frameworkWriter{ResponseWriter: httptest.NewRecorder(), status: 200}
			h := httponce.Wrap(onlyonce.New(store, onlyonce.Config{}), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				write(outer)
			}), httponce.Config{Tenant: httponce.SingleTenant})
			func() {
				defer func() {
					if text := fmt.Sprint(recover()); !strings.Contains(text, "outer ResponseWriter") {
						t.Errorf("the panic is %s", text)
					}
				}()
				h.ServeHTTP(outer, keyedPost("a"))
			}()
			rec, err := store.Lookup(t.Context(), onlyonce.ID{Tenant: "single", Operation: "POST /charges", Key: "k"})
			if err != nil || rec.State != onlyonce.StateUnknown {
				t.Errorf("the record is %+v, %v", rec, err)
			}
		})
	}
}

func TestBypass_AHandlerThatWritesPastTheLayerIsFoundOnNetHTTPsOwnServer(t *testing.T) {
	past := func(outer http.ResponseWriter) { fmt.Fprint(outer, "charged") }
	through := func(http.ResponseWriter) {}
	for name, c := range map[string]struct {
		http2   bool
		wrapped bool // the ResponseWriter of the server
		write   func(outer http.ResponseWriter)
		state   onlyonce.State
	}{
		"HTTP/1, past it":             {false, false, past, onlyonce.StateUnknown},
		"HTTP/2, past it":             {true, false, past, onlyonce.StateUnknown},
		"HTTP/1, past it, in another": {false, true, past, onlyonce.StateUnknown},
		"HTTP/1, a status past it":    {false, false, func(outer http.ResponseWriter) { outer.WriteHeader(http.StatusNoContent) }, onlyonce.StateUnknown},
		"HTTP/1, nothing":             {false, false, through, onlyonce.StateCompleted},
		"HTTP/2, nothing":             {true, false, through, onlyonce.StateCompleted},
		"HTTP/1, nothing, in another": {false, true, through, onlyonce.StateCompleted},
		"HTTP/1, an interim response": {false, false, func(outer http.ResponseWriter) { outer.WriteHeader(http.StatusEarlyHints) }, onlyonce.StateCompleted},
		"HTTP/2, an interim response": {true, false, func(outer http.ResponseWriter) { outer.WriteHeader(http.StatusEarlyHints) }, onlyonce.StateCompleted},
	} {
		t.Run(name, func(t *testing.T) {
			store := memstore.New(memstore.Config{})
			guard := onlyonce.New(store, onlyonce.Config{Observer: onlyonce.DiscardEvents})
			panics := make(chan any, 1)
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() { panics <- recover() }()
				if c.wrapped {
					w = aroundWriter{w}
				}
				httponce.Wrap(guard, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { c.write(w) }), httponce.Config{Tenant: httponce.SingleTenant}).ServeHTTP(w, r)
			}))
			server.EnableHTTP2 = c.http2
			server.StartTLS()
			t.Cleanup(server.Close)
			r := keyedPost("a")
			r.RequestURI, r.URL.Scheme, r.URL.Host = "", "https", server.Listener.Addr().String()
			resp, err := server.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if (resp.ProtoMajor == 2) != c.http2 {
				t.Errorf("the protocol is %s", resp.Proto)
			}
			if p := <-panics; (p != nil) != (c.state == onlyonce.StateUnknown) || p != nil && !strings.Contains(fmt.Sprint(p), "outer ResponseWriter") {
				t.Errorf("the panic is %v", p)
			}
			rec, err := store.Lookup(t.Context(), onlyonce.ID{Tenant: "single", Operation: "POST /charges", Key: "k"})
			if err != nil || rec.State != c.state {
				t.Errorf("the record is %+v, %v, want %s", rec, err, c.state)
			}
		})
	}
}

// An aroundWriter is a ResponseWriter of a framework that does not tell its state.
type aroundWriter struct{ http.ResponseWriter }

func (w aroundWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func TestBypass_AHandlerThatWritesThroughTheLayerDoesNotPanic(t *testing.T) {
	outer := &frameworkWriter{ResponseWriter: httptest.NewRecorder(), status: 200}
	h := httponce.Wrap(onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, "charged")
	}), httponce.Config{Tenant: httponce.SingleTenant})
	h.ServeHTTP(outer, keyedPost("a"))
	if outer.status != http.StatusCreated {
		t.Errorf("status %d", outer.status)
	}
}

func TestBypass_AHandlerThatStreamsThroughTheLayerDoesNotPanic(t *testing.T) {
	outer := &frameworkWriter{ResponseWriter: httptest.NewRecorder(), status: 200}
	h := httponce.Wrap(onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "longer than is stored")
	}), httponce.Config{Tenant: httponce.SingleTenant, MaxResponse: 4})
	h.ServeHTTP(outer, keyedPost("a"))
	if !outer.written {
		t.Error("nothing was written")
	}
}

func TestBypass_AResponseThatIsWrittenAfterTheHandlerHasReturnedIsObserved(t *testing.T) {
	var mu sync.Mutex
	var told []onlyonce.Event
	guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{Observer: func(_ context.Context, e onlyonce.Event) {
		mu.Lock()
		defer mu.Unlock()
		if e.Outcome == onlyonce.OutcomeUnrecorded {
			told = append(told, e)
		}
	}})
	var inner http.ResponseWriter
	h := httponce.Wrap(guard, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { inner = w }), httponce.Config{Tenant: httponce.SingleTenant})
	outer := httptest.NewRecorder()
	h.ServeHTTP(outer, keyedPost("a"))
	if len(told) != 0 {
		t.Fatalf("told of %+v", told)
	}
	inner.WriteHeader(http.StatusInternalServerError) // as an error handler that runs after the layer
	if _, err := fmt.Fprint(inner, "no"); err == nil {
		t.Error("the write was accepted")
	}
	if len(told) != 1 || !strings.Contains(told[0].Err.Error(), "after the handler had returned") || told[0].Record.ID.Key != "k" {
		t.Errorf("told of %+v", told)
	}
	if outer.Code != 200 || outer.Body.Len() != 0 {
		t.Errorf("the client got %d %s", outer.Code, outer.Body)
	}
}

// A middleware that buffers the response, to compress it for example, writes it after InTx has
// committed one without it.
func TestBypass_AResponseThatIsWrittenAfterItsCommitIsObserved(t *testing.T) {
	text := func(w http.ResponseWriter, r *http.Request, _ error) { fmt.Fprint(w, "paid") }
	status := func(code int) func(http.ResponseWriter, *http.Request, error) {
		return func(w http.ResponseWriter, r *http.Request, _ error) { w.WriteHeader(code) }
	}
	for _, c := range []struct {
		name   string
		after  func(http.ResponseWriter, *http.Request, error)
		commit error
		told   int
	}{
		{"a body", text, nil, 1},
		{"another status", status(204), nil, 1},
		{"the same status", status(200), nil, 0},
		{"an interim status", status(103), nil, 0},
		{"an empty piece", func(w http.ResponseWriter, r *http.Request, _ error) { fmt.Fprint(w) }, nil, 0},
		{"after a failed commit", text, errBroken, 0},
	} {
		s, told := newShop(), 0
		s.Commit = c.commit
		h := pay(s, onlyonce.Config{Observer: func(_ context.Context, e onlyonce.Event) {
			if e.Outcome == onlyonce.OutcomeUnrecorded && strings.Contains(e.Err.Error(), "after InTx had committed it") {
				told++
			}
		}}, func(http.ResponseWriter, *http.Request) error { return nil }, c.after)
		post(h, "k", "tea")
		if told != c.told {
			t.Errorf("%s: told %d times", c.name, told)
		}
	}
}

// A goroutine that the handler has left behind may set the header while the response
// is recorded, as the Observer does here.
func TestWrap_AHeaderThatIsSetAfterTheHandlerHasReturnedIsNotSent(t *testing.T) {
	var late http.ResponseWriter
	g := newGuard(onlyonce.Config{Observer: func(_ context.Context, e onlyonce.Event) {
		if e.Outcome == onlyonce.OutcomeExecuted {
			late.Header().Set("X-Late", "1")
			late.Header().Del("X-Early")
		}
	}})
	h := httponce.Wrap(g, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		late = w
		w.Header().Set("X-Early", "1")
		w.WriteHeader(http.StatusCreated)
	}), single)
	for _, replayed := range []string{"", "true"} {
		head := post(h, "k", "tea").Header()
		if head.Get("X-Late") != "" || head.Get("X-Early") != "1" || head.Get("Idempotency-Replayed") != replayed {
			t.Errorf("replayed %q: the header is %v", replayed, head)
		}
	}
}

// A repeat with another form would otherwise get the response to the first.
func TestBypass_ABodyThatWasReadBeforePanicsAndNothingRuns(t *testing.T) {
	const form, multipart = "application/x-www-form-urlencoded", "multipart/form-data; boundary=b"
	parts := "--b\r\nContent-Disposition: form-data; name=to\r\n\r\nada\r\n--b--\r\n"
	drain := func(r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }
	keyInBody := httponce.Config{Tenant: httponce.SingleTenant, KeyInBody: func([]byte) (string, error) { return "", nil }, SkipFingerprint: true}
	for name, c := range map[string]struct {
		kind, body string
		read       func(*http.Request)
		cfg        httponce.Config
		change     func(*http.Request)
		runs       bool
	}{
		"a form":                   {form, "to=ada", func(r *http.Request) { r.FormValue("csrf") }, single, nil, false},
		"a form of unknown length": {form, "to=ada", func(r *http.Request) { r.FormValue("csrf") }, single, func(r *http.Request) { r.ContentLength = -1 }, false},
		"parts of unknown length":  {multipart, parts, func(r *http.Request) { r.FormValue("csrf") }, single, func(r *http.Request) { r.ContentLength = -1 }, false},
		"a form over HTTP/2":       {form, "to=ada", func(r *http.Request) { r.FormValue("csrf") }, single, func(r *http.Request) { r.ProtoMajor = 2; r.Header.Set("Content-Length", "6") }, false},
		"anything":                 {"text/plain", "ada", drain, single, nil, false},
		"and none is left":         {"text/plain", "ada", func(r *http.Request) { r.Body = http.NoBody }, single, nil, false},
		"a key may be in it":       {"text/plain", "ada", drain, keyInBody, nil, false},
		"and was given back":       {form, "to=ada", func(r *http.Request) { r.FormValue("csrf"); r.Body = io.NopCloser(strings.NewReader("to=ada")) }, single, nil, true},
		"that is not a form":       {"application/json", "{}", func(r *http.Request) { r.FormValue("csrf") }, single, nil, true},
		"a part of it":             {"text/plain", "ada", func(r *http.Request) { _, _ = r.Body.Read(make([]byte, 1)) }, single, nil, true},
		"a compressed one":         {"text/plain", "ada", drain, single, func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }, true},
		"an empty one":             {form, "", func(r *http.Request) { r.FormValue("csrf") }, single, nil, true},
		"it is not compared":       {form, "to=ada", func(r *http.Request) { r.FormValue("csrf") }, httponce.Config{Tenant: httponce.SingleTenant, SkipFingerprint: true}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			runs := 0
			h := httponce.Wrap(newGuard(onlyonce.Config{}), http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runs++ }), c.cfg)
			r := keyedPost(c.body)
			r.Header.Set("Content-Type", c.kind)
			if c.change != nil {
				c.change(r)
			}
			c.read(r)
			func() {
				defer func() {
					if text := fmt.Sprint(recover()); strings.Contains(text, "has read the request's body") == c.runs {
						t.Errorf("the panic is %s", text)
					}
				}()
				h.ServeHTTP(httptest.NewRecorder(), r)
			}()
			if (runs == 1) != c.runs {
				t.Errorf("it ran %d times", runs)
			}
		})
	}
}
