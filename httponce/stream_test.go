package httponce_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// A tap is a ResponseWriter that tells, before bytes of the body leave, how many
// have left.
type tap struct {
	*httptest.ResponseRecorder
	before func(sent int)
}

func (w *tap) Write(p []byte) (int, error) {
	if len(p) > 0 {
		w.before(w.Body.Len())
	}
	return w.ResponseRecorder.Write(p)
}

func (w *tap) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

func TestStream_TheResultIsDurableBeforeTheFirstByteLeaves(t *testing.T) {
	store := memstore.New(memstore.Config{})
	h := httponce.Wrap(onlyonce.New(store, onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "answer")
	}), single)
	told := false
	w := &tap{ResponseRecorder: httptest.NewRecorder(), before: func(int) {
		told = true
		if rec := lookup(t, store, "k"); rec.State != onlyonce.StateCompleted || string(rec.Result.Body) != "answer" {
			t.Errorf("as the response leaves, the record is %+v", rec)
		}
	}}
	if h.ServeHTTP(w, keyed(http.MethodPost, "/orders", "k", "x")); !told {
		t.Fatal("no byte left")
	}
}

func TestStream_AFlushedResponseIsSentAtOnceAndRecordedAtItsEnd(t *testing.T) {
	store := memstore.New(memstore.Config{})
	w := httptest.NewRecorder()
	h := httponce.Wrap(onlyonce.New(store, onlyonce.Config{}), http.HandlerFunc(func(hw http.ResponseWriter, _ *http.Request) {
		io.WriteString(hw, "one ")
		if w.Body.Len() != 0 {
			t.Error("bytes left before the flush")
		}
		if err := http.NewResponseController(hw).Flush(); err != nil || !w.Flushed || w.Body.String() != "one " {
			t.Errorf("flush: %v, flushed %v, %q", err, w.Flushed, w.Body)
		}
		io.WriteString(hw, "two ")
		io.Copy(hw, strings.NewReader("three"))
		if w.Body.String() != "one two three" {
			t.Errorf("after the flush, %q has left", w.Body)
		}
		if rec := lookup(t, store, "k"); rec.State != onlyonce.StateProcessing {
			t.Errorf("while it streams, the record is %+v", rec)
		}
	}), single)
	h.ServeHTTP(w, keyed(http.MethodPost, "/orders", "k", "x"))
	again := post(h, "k", "x")
	wantResponse(t, again, 200, "one two three")
	if again.Header().Get("Idempotency-Replayed") != "true" {
		t.Fatalf("header %v", again.Header())
	}
}

func TestStream_AStreamedResponseIsRecordedBeforeItsLastByteIsSent(t *testing.T) {
	for name, flush := range map[string]int{"flushed at once": 0, "flushed half-way": 50, "flushed at the end": 100, "too long": -1, "too long in one write": -2} {
		t.Run(name, func(t *testing.T) {
			store := memstore.New(memstore.Config{})
			w := httptest.NewRecorder()
			cfg := single
			if flush < 0 {
				cfg.MaxResponse = 20
			}
			h := httponce.Wrap(onlyonce.New(store, onlyonce.Config{}), http.HandlerFunc(func(hw http.ResponseWriter, _ *http.Request) {
				hw.Header().Set("Content-Length", "100")
				if flush == -2 {
					hw.Write(bytes.Repeat([]byte("x"), 100))
				} else {
					for n := range 100 {
						if n == flush {
							http.NewResponseController(hw).Flush()
						}
						io.WriteString(hw, "x")
					}
				}
				if flush == 100 {
					http.NewResponseController(hw).Flush()
				}
				if _, _, err := http.NewResponseController(hw).Hijack(); !errors.Is(err, http.ErrNotSupported) {
					t.Errorf("a recorder is hijacked: %v", err)
				}
				if w.Body.Len() != 99 || lookup(t, store, "k").State != onlyonce.StateProcessing {
					t.Errorf("before the handler returned, %d of 100 bytes have left", w.Body.Len())
				}
			}), cfg)
			last := &tap{w, func(sent int) {
				if sent == 99 && lookup(t, store, "k").State != onlyonce.StateCompleted {
					t.Error("the last byte leaves, and nothing is recorded")
				}
			}}
			if h.ServeHTTP(last, keyed(http.MethodPost, "/orders", "k", "x")); w.Body.Len() != 100 {
				t.Fatalf("%d bytes have left", w.Body.Len())
			}
		})
	}
}

// A headed writer tells when the header leaves.
type headed struct {
	*httptest.ResponseRecorder
	before func()
}

func (w *headed) WriteHeader(status int) {
	w.before()
	w.ResponseRecorder.WriteHeader(status)
}

func TestStream_AResponseWithoutABodyIsRecordedBeforeItsHeaderIsSent(t *testing.T) {
	for name, answer := range map[string]func(http.ResponseWriter){
		"204":       func(w http.ResponseWriter) { w.WriteHeader(204) },
		"304":       func(w http.ResponseWriter) { w.WriteHeader(304) },
		"no length": func(w http.ResponseWriter) { w.Header().Set("Content-Length", "0") },
	} {
		t.Run(name, func(t *testing.T) {
			store := memstore.New(memstore.Config{})
			h := httponce.Wrap(onlyonce.New(store, onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				answer(w)
				if err := http.NewResponseController(w).Flush(); err != nil {
					t.Error(err)
				}
			}), single)
			left := false
			w := &headed{httptest.NewRecorder(), func() {
				if left = true; lookup(t, store, "k").State != onlyonce.StateCompleted {
					t.Error("the response leaves, and nothing is recorded")
				}
			}}
			if h.ServeHTTP(w, keyed(http.MethodPost, "/orders", "k", "x")); !left {
				t.Error("no header has left")
			}
		})
	}
}

func TestStream_AWriterThatCantFlushIsBuffered(t *testing.T) {
	store := memstore.New(memstore.Config{})
	h := httponce.Wrap(onlyonce.New(store, onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "answer")
		if err := http.NewResponseController(w).Flush(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("flush: %v", err)
		}
	}), single)
	w := &discard{http.Header{}}
	h.ServeHTTP(w, keyed(http.MethodPost, "/orders", "k", "x"))
	wantResponse(t, post(h, "k", "x"), 200, "answer")
}

func TestStream_AResponseOverTheLimitIsSentWholeAndReplayedWithoutItsBody(t *testing.T) {
	long := bytes.Repeat([]byte("0123456789"), 10)
	for name, write := range map[string]func(w http.ResponseWriter){
		"one write": func(w http.ResponseWriter) { w.Write(long) },
		"many writes": func(w http.ResponseWriter) {
			io.Copy(struct{ io.Writer }{w}, bufio.NewReaderSize(bytes.NewReader(long), 16))
		},
		"read from": func(w http.ResponseWriter) { io.Copy(w, bytes.NewReader(long)) },
		"flushed": func(w http.ResponseWriter) {
			w.Write(long[:7])
			http.NewResponseController(w).Flush()
			w.Write(long[7:])
		},
		"with its length": func(w http.ResponseWriter) { w.Header().Set("Content-Length", "100"); w.Write(long) },
	} {
		for _, limit := range []int{99, 5} {
			t.Run(fmt.Sprint(name, ", limit ", limit), func(t *testing.T) {
				runs := 0
				h := httponce.Wrap(newGuard(onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					runs++
					w.Header().Set("Location", "/orders/1")
					w.Header().Set("Content-Encoding", "br")
					w.WriteHeader(201)
					write(w)
				}), httponce.Config{Tenant: httponce.SingleTenant, MaxResponse: limit})
				wantResponse(t, post(h, "k", "x"), 201, string(long))
				again := post(h, "k", "x")
				if again.Code != 201 || again.Body.Len() != 0 || runs != 1 {
					t.Fatalf("the repeat: %d %q after %d runs", again.Code, again.Body, runs)
				}
				head := again.Header()
				if head.Get("Idempotency-Replay") != "omitted" || head.Get("Idempotency-Replayed") != "true" || head.Get("Location") != "/orders/1" ||
					head.Get("Content-Length") != "" || head.Get("Content-Encoding") != "" {
					t.Fatalf("the repeat has %v", head)
				}
			})
		}
	}
}

func TestStream_AResponseAtTheLimitIsStored(t *testing.T) {
	h := httponce.Wrap(newGuard(onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "0123")
		io.WriteString(w, "456789")
	}), httponce.Config{Tenant: httponce.SingleTenant, MaxResponse: 10})
	for range 2 {
		wantResponse(t, post(h, "k", "x"), 200, "0123456789")
	}
}

// A broken ResponseWriter has lost its client.
type broken struct{ *httptest.ResponseRecorder }

func (broken) Write([]byte) (int, error)       { return 0, errBroken }
func (broken) WriteString(string) (int, error) { return 0, errBroken }
func (broken) FlushError() error               { return errBroken }

func TestStream_AStreamIsRecordedToItsEndAlthoughItsClientWentAway(t *testing.T) {
	h := httponce.Wrap(newGuard(onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range 5 {
			if _, err := io.WriteString(w, "ab"); err != nil {
				t.Errorf("write: %v", err)
			}
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Errorf("flush: %v", err)
			}
		}
		if _, err := io.WriteString(w, "more than is stored"); !errors.Is(err, errBroken) {
			t.Errorf("past the limit: %v", err)
		}
		if err := http.NewResponseController(w).Flush(); !errors.Is(err, errBroken) {
			t.Errorf("flush past the limit: %v", err)
		}
	}), httponce.Config{Tenant: httponce.SingleTenant, MaxResponse: 10})
	h.ServeHTTP(broken{httptest.NewRecorder()}, keyed(http.MethodPost, "/orders", "k", "x"))
	if w := post(h, "k", "x"); w.Code != 200 || w.Header().Get("Idempotency-Replay") != "omitted" {
		t.Fatalf("the repeat: %d %v", w.Code, w.Header())
	}
}

func TestStream_APanicInAStreamLeavesTheOutcomeUnknown(t *testing.T) {
	store := memstore.New(memstore.Config{})
	h := httponce.Wrap(onlyonce.New(store, onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "half")
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}), single)
	wantPanic(t, http.ErrAbortHandler, func() { post(h, "k", "x") })
	if rec := lookup(t, store, "k"); rec.State != onlyonce.StateUnknown {
		t.Fatalf("record %+v", rec)
	}
}

func TestStream_AHijackedConnectionIsNotStored(t *testing.T) {
	runs := 0
	h := httponce.Wrap(newGuard(onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		runs++
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		if _, err := io.WriteString(w, "x"); !errors.Is(err, http.ErrHijacked) {
			t.Errorf("write: %v", err)
		}
		if _, _, err := w.(http.Hijacker).Hijack(); !errors.Is(err, http.ErrHijacked) {
			t.Errorf("hijack again: %v", err)
		}
		io.WriteString(rw, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nraw")
		rw.Flush()
	}), single)
	served := make(chan bool, 2)
	s := newServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		served <- true
	}), false)
	for range 2 {
		got, own := fetch(t, s.Client(), s.URL, "k")
		<-served
		if got.Body != "raw" || len(own) != 0 {
			t.Fatalf("response %+v, %v", got, own)
		}
	}
	if runs != 2 {
		t.Fatalf("%d runs", runs)
	}
}

func TestStream_ACompleteResponseIsSentBeforeItsConnectionIsHijacked(t *testing.T) {
	h := httponce.Wrap(newGuard(onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "3")
		io.WriteString(w, "raw")
		w.(http.Flusher).Flush()
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		conn.Close()
	}), single)
	s := newServer(t, h, false)
	if got, _ := fetch(t, s.Client(), s.URL, "k"); got.Body != "raw" {
		t.Errorf("response %+v", got)
	}
}

func TestStream_AnUpgradeIsNotStored(t *testing.T) {
	runs := 0
	h := httponce.Wrap(newGuard(onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		runs++
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "echo")
		w.WriteHeader(http.StatusSwitchingProtocols)
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.Copy(conn, io.LimitReader(rw, 4))
	}), single)
	served := make(chan bool, 2)
	s := newServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		served <- true
	}), false)
	for range 2 {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, "POST / HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k\r\nContent-Length: 0\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nping")
		got, err := io.ReadAll(conn)
		if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 101 ") || !strings.HasSuffix(string(got), "ping") {
			t.Fatalf("response %q, %v", got, err)
		}
		conn.Close()
		<-served
	}
	if runs != 2 {
		t.Fatalf("%d runs", runs)
	}
}

func TestStream_WhatAHandlerKeepsIsUselessAfterItsReturn(t *testing.T) {
	var kept http.ResponseWriter
	var body io.Reader
	h := httponce.Wrap(newGuard(onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if kept == nil {
			kept, body = w, r.Body
			w.Header().Set("X-First", "1")
			io.WriteString(w, "first")
			return
		}
		w.Header().Set("X-Second", "2")
		io.WriteString(w, "second")
		if _, err := io.WriteString(kept, "more"); err == nil {
			t.Error("written to a kept ResponseWriter")
		}
		if _, err := kept.(io.ReaderFrom).ReadFrom(strings.NewReader("more")); err == nil {
			t.Error("copied to a kept ResponseWriter")
		}
		if err := http.NewResponseController(kept).Flush(); err == nil {
			t.Error("flushed a kept ResponseWriter")
		}
		if _, _, err := kept.(http.Hijacker).Hijack(); err == nil {
			t.Error("hijacked through a kept ResponseWriter")
		}
		kept.WriteHeader(500)
		kept.WriteHeader(103)
		if b, err := io.ReadAll(body); err == nil || len(b) != 0 {
			t.Errorf("read %q through a kept body, %v", b, err)
		}
	}), single)
	first := post(h, "a", "the first body")
	for range 2 {
		w := post(h, "b", "the second body")
		wantResponse(t, w, 200, "second")
		if w.Header().Get("X-Second") != "2" || w.Header().Get("X-First") != "" {
			t.Fatalf("the second response has %v", w.Header())
		}
	}
	wantResponse(t, first, 200, "first")
	wantResponse(t, post(h, "a", "the first body"), 200, "first")
}

func TestStream_KeptWritersDoNotRaceWithOtherRequests(t *testing.T) {
	h := httponce.Wrap(newGuard(onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		go func() {
			for range 100 {
				w.Write([]byte("leak"))
				r.Body.Read(make([]byte, 4))
			}
		}()
	}), single)
	for i := range 200 {
		key := strings.Repeat("k", i+1)
		if w := post(h, key, key); strings.Trim(strings.ReplaceAll(w.Body.String(), "leak", ""), "") != "" {
			t.Fatalf("response %q", w.Body)
		}
	}
}

// lateWriter keeps the header of an interim response and encodes it later, as net/http
// does over HTTP/2 if the client resets its stream. Like net/http, it copies a header that has
// a length.
type lateWriter struct {
	*httptest.ResponseRecorder
	late http.Header
}

func (w *lateWriter) WriteHeader(status int) {
	if status >= 200 {
		w.ResponseRecorder.WriteHeader(status)
		return
	}
	w.late = w.Header()
	if _, ok := w.late["Content-Length"]; ok {
		w.late = w.late.Clone()
		w.late.Del("Content-Length")
	}
}

func TestStream_TheHeaderOfAnInterimResponseDoesNotChange(t *testing.T) {
	h := httponce.Wrap(newGuard(onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</a.css>")
		w.WriteHeader(http.StatusEarlyHints)
		io.WriteString(w, "hi")
	}), single)
	w := &lateWriter{ResponseRecorder: httptest.NewRecorder()}
	r := httptest.NewRequest("POST", "/", strings.NewReader("x"))
	r.Header.Set("Idempotency-Key", "a")
	h.ServeHTTP(w, r)
	if wantResponse(t, w.ResponseRecorder, 200, "hi"); fmt.Sprint(w.late) != "map[Link:[</a.css>]]" {
		t.Errorf("the interim response has %v", w.late)
	}
}

// Otherwise its client would take the part that was sent for all of it.
func TestStream_APanicBreaksOffTheResponseAlsoIfAHandlerOutsideRecovers(t *testing.T) {
	for name, p := range map[string]any{"a panic": "half done", "an abort": http.ErrAbortHandler} {
		for _, version := range []int{1, 2} {
			h := httponce.Wrap(newGuard(onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "a part")
				_ = http.NewResponseController(w).Flush()
				panic(p)
			}), single)
			srv := httptest.NewUnstartedServer(recovered(http.StatusInternalServerError, h.ServeHTTP))
			srv.EnableHTTP2 = version == 2
			srv.StartTLS()
			defer srv.Close()
			r := keyed(http.MethodPost, srv.URL+"/orders", "k", "x")
			r.RequestURI = ""
			res, err := srv.Client().Do(r)
			if err != nil {
				continue // the header was not sent either
			}
			body, err := io.ReadAll(res.Body)
			if res.Body.Close(); err == nil || res.ProtoMajor != version {
				t.Errorf("%s over HTTP/%d: the client takes %q for the whole", name, res.ProtoMajor, body)
			}
		}
	}
}
