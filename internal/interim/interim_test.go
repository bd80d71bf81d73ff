package interim_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"testing"

	"github.com/onlyonce-go/onlyonce/internal/interim"
)

func TestWrite_AnInterimResponseHasTheHeaderWithoutALength(t *testing.T) {
	for name, lengths := range map[string][]string{"without a length": nil, "with a length": {"2"}} {
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			h := w.Header()
			if h["X-Both"] = []string{"1"}; lengths != nil {
				h["Content-Length"] = lengths
			}
			interim.Write(w, http.StatusEarlyHints)
			if got, ok := h["Content-Length"]; ok != (lengths != nil) || fmt.Sprint(got) != fmt.Sprint(lengths) {
				t.Errorf("%s: the header has the length %q afterwards", name, got)
			}
			_, _ = w.Write([]byte("hi"))
		}))
		srv.EnableHTTP2 = true
		srv.StartTLS()
		defer srv.Close()
		var hints []string
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			hints = append(hints, fmt.Sprint(code, h))
			return nil
		}})
		r, _ := http.NewRequestWithContext(ctx, "GET", srv.URL, nil)
		res, err := srv.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.ProtoMajor != 2 || res.Header.Get("X-Both") != "1" || res.ContentLength != 2 || fmt.Sprint(hints) != "[103 map[X-Both:[1]]]" {
			t.Errorf("%s: HTTP/%d, %v, %v", name, res.ProtoMajor, res.Header, hints)
		}
	}
}

// lateWriter keeps the header of an interim response and encodes it later, as net/http
// does if the client resets its stream. Like net/http, it copies a header that has a length.
type lateWriter struct {
	*httptest.ResponseRecorder
	late http.Header
}

func (w *lateWriter) WriteHeader(int) {
	w.late = w.Header()
	if _, ok := w.late["Content-Length"]; ok {
		w.late = w.late.Clone()
		w.late.Del("Content-Length")
	}
}

func TestWrite_AHeaderThatIsEncodedLateDoesNotChange(t *testing.T) {
	w := &lateWriter{ResponseRecorder: httptest.NewRecorder()}
	w.Header().Set("Link", "</a.css>")
	interim.Write(w, http.StatusEarlyHints)
	clear(w.Header())
	w.Header().Set("X-Later", "1")
	if fmt.Sprint(w.late) != "map[Link:[</a.css>]]" {
		t.Errorf("the interim response has %v", w.late)
	}
}
