package httponce_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"reflect"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
)

// handlers must behave in the same way with and without a wrapper.
var handlers = map[string]http.HandlerFunc{
	"nothing":       func(http.ResponseWriter, *http.Request) {},
	"status only":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) },
	"implicit 200":  func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") },
	"no content":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
	"not modified":  func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Etag", `"1"`); w.WriteHeader(304) },
	"error":         func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no such thing", http.StatusNotFound) },
	"redirect":      func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusSeeOther) },
	"sniffed HTML":  func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<!doctype html><p>hi") },
	"sniffed bytes": func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte{0, 1, 2, 0xff}) },
	"sniffed over several writes": func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "<!doc")
		io.WriteString(w, "type html><p>hi")
	},
	"no content type": func(w http.ResponseWriter, _ *http.Request) { w.Header()["Content-Type"] = nil; io.WriteString(w, "x") },
	"encoded, no type": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "br")
		w.Write([]byte{1})
	},
	"own content length": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "5")
		io.WriteString(w, "hello")
	},
	"too long for it": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "5")
		io.WriteString(w, "hello")
		if r.ProtoMajor != 1 {
			return // net/http's HTTP/2 breaks the stream off
		}
		if _, err := io.WriteString(w, "!"); !errors.Is(err, http.ErrContentLength) {
			panic(err)
		}
	},
	"a body where none is allowed": func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
		if _, err := io.WriteString(w, "x"); !errors.Is(err, http.ErrBodyNotAllowed) {
			panic(err)
		}
	},
	"header twice": func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(201)
		w.WriteHeader(202)
		io.WriteString(w, "x")
	},
	"header after the end": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "x"); w.Header().Set("X-Late", "1") },
	"header changed in place after the end": func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["X-Odd"] = []string{"1", "2"}
		w.WriteHeader(201)
		w.Header()["X-Odd"][0] = "3"
		w.Header().Del("X-Gone")
	},
	"values in order, with repeats": func(w http.ResponseWriter, _ *http.Request) {
		for _, v := range []string{"b", "a", "b", "", "a, b"} {
			w.Header().Add("X-Many", v)
		}
		w.Header()["x-lower"] = []string{"1"}
	},
	"every byte": func(w http.ResponseWriter, _ *http.Request) {
		for i := range 256 {
			w.Write([]byte{byte(i)})
		}
	},
	"long body": func(w http.ResponseWriter, _ *http.Request) { w.Write(bytes.Repeat([]byte("long "), 20_000)) },
	"read from": func(w http.ResponseWriter, _ *http.Request) {
		io.Copy(w, strings.NewReader(strings.Repeat("r", 100_000)))
	},
	"echo":       func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) },
	"reads none": func(w http.ResponseWriter, r *http.Request) { r.Body.Close(); io.WriteString(w, "ok") },
	"reads after close": func(w http.ResponseWriter, r *http.Request) {
		r.Body.Close()
		_, err := r.Body.Read(make([]byte, 1))
		fmt.Fprint(w, err != nil && err != io.EOF)
	},
	"sees the request": func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		fmt.Fprint(w, string(b), err, r.ContentLength, r.TransferEncoding, r.Trailer, r.Method, r.URL, r.Header["Content-Type"], r.PathValue("x"))
	},
	"MaxBytesReader": func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 3)
		_, err := io.ReadAll(r.Body)
		var over *http.MaxBytesError
		fmt.Fprint(w, errors.As(err, &over), over.Limit)
	},
	"trailer, declared": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-Sum, X-Other")
		io.WriteString(w, "body")
		w.Header().Set("X-Sum", "42")
		w.Header().Add("X-Other", "a")
		w.Header().Add("X-Other", "b")
	},
	"trailer, with the prefix": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(http.TrailerPrefix+"X-Early", "1")
		io.WriteString(w, "body")
	},
	"trailer only": func(w http.ResponseWriter, _ *http.Request) {
		http.NewResponseController(w).Flush()
		w.Header().Set(http.TrailerPrefix+"X-Late", "1")
	},
	"trailer after a flush": func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "body")
		http.NewResponseController(w).Flush()
		w.Header().Set(http.TrailerPrefix+"X-Late", "1")
	},
	"flushed, short first piece": func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "<!doc")
		http.NewResponseController(w).Flush()
		io.WriteString(w, "type html><p>hi")
	},
	"flushed before the body": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-A", "1")
		w.(http.Flusher).Flush()
		w.Header().Set("X-A", "2")
		io.WriteString(w, "<p>")
	},
	"early hints": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</a.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Link", "</b.css>; rel=preload")
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "x")
	},
	"deadlines": func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		fmt.Fprint(w, rc.SetReadDeadline(noTime), rc.SetWriteDeadline(noTime), rc.EnableFullDuplex())
	},
}

// A seen response is a response without the parts that differ between any two.
type seen struct {
	Status        int
	Header        http.Header
	Body          string
	Trailer       http.Header
	Length        int64
	Encoding      []string
	Informational []http.Header
}

// fetch sends a POST, and returns the response and the layer's own headers.
func fetch(t *testing.T, c *http.Client, url, key string) (seen, http.Header) {
	t.Helper()
	var s seen
	trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
		s.Informational = append(s.Informational, http.Header(h))
		return nil
	}}
	r, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodPost, url, strings.NewReader(`{"n":1}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	own := http.Header{}
	for name := range res.Header {
		if strings.HasPrefix(name, "Idempotency-") {
			own[name] = res.Header[name]
			delete(res.Header, name)
		}
	}
	delete(res.Header, "Date")
	s.Status, s.Header, s.Body, s.Trailer = res.StatusCode, res.Header, string(body), res.Trailer
	s.Length, s.Encoding = res.ContentLength, res.TransferEncoding
	return s, own
}

func newServer(t *testing.T, h http.Handler, http2 bool) *httptest.Server {
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = silent
	if s.EnableHTTP2 = http2; http2 {
		s.StartTLS()
	} else {
		s.Start()
	}
	s.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	t.Cleanup(s.Close)
	return s
}

func TestWrap_AResponseIsTheSameWithoutTheWrapperAndTheFirstTimeAndRepeated(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		for name, h := range handlers {
			t.Run(fmt.Sprintf("%s, HTTP/2 %v", name, http2), func(t *testing.T) {
				t.Parallel()
				mux := http.NewServeMux()
				mux.Handle("POST /{x}", httponce.Wrap(newGuard(onlyonce.Config{}), h, single))
				s := newServer(t, mux, http2)
				bare, own := fetch(t, s.Client(), s.URL+"/a?b=c", "")
				if len(own) != 0 {
					t.Fatalf("a response without a key has %v", own)
				}
				first, own := fetch(t, s.Client(), s.URL+"/a?b=c", "k")
				if own.Get("Idempotency-Replayed") != "" {
					t.Fatalf("the first response has %v", own)
				}
				again, own := fetch(t, s.Client(), s.URL+"/a?b=c", "k")
				if own.Get("Idempotency-Replayed") != "true" || own.Get("Idempotency-Expires") == "" {
					t.Fatalf("the repeat has %v", own)
				}
				if strings.HasPrefix(name, "flushed") || name == "trailer only" || strings.HasSuffix(name, "flush") {
					again.Length, again.Encoding = first.Length, first.Encoding // a replay need not stream
					again.Header.Del("Content-Length")
				}
				if again.Informational = first.Informational; name == "early hints" && len(first.Informational) != 1 {
					t.Fatalf("informational answers: %v", first.Informational)
				}
				if !reflect.DeepEqual(bare, first) {
					t.Errorf("without the wrapper\n%+v\nwith it\n%+v", bare, first)
				}
				if !reflect.DeepEqual(first, again) {
					t.Errorf("the first time\n%+v\nrepeated\n%+v", first, again)
				}
			})
		}
	}
}
