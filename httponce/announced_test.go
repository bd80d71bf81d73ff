package httponce_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
)

// By HTTP/2, net/http lets a request through whose announced body never comes.
func TestSecurity_ABodyThatIsAnnouncedAndMissingIsRejected(t *testing.T) {
	var runs atomic.Int32
	h := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), single)
	send := func(lengths ...string) *httptest.ResponseRecorder {
		r := keyed("POST", "/orders", "k", "")
		r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/2.0", 2, 0
		r.Body, r.Header["Content-Length"] = http.NoBody, lengths
		return serve(h, r)
	}
	for _, lengths := range [][]string{{"7"}, {"0", "7"}, {""}} {
		wantProblem(t, send(lengths...), 400, "body_unreadable")
	}
	if runs.Load() != 0 {
		t.Errorf("%d runs", runs.Load())
	}
	if w := send("0"); w.Code != 201 || runs.Load() != 1 {
		t.Errorf("an announced empty body: %d, %d runs", w.Code, runs.Load())
	}
	if w := send(); w.Code != 201 || runs.Load() != 1 {
		t.Errorf("none that is announced: %d, %d runs", w.Code, runs.Load())
	}
}

// By HTTP/3, quic-go lets a request through whose body ends before its announced length.
func TestSecurity_ABodyThatIsShorterThanAnnouncedByHTTP3IsRejected(t *testing.T) {
	var runs atomic.Int32
	h := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), single)
	send := func(length int64) *httptest.ResponseRecorder {
		r := keyed("POST", "/orders", "k", "tea")
		r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/3.0", 3, 0
		r.ContentLength = length
		return serve(h, r)
	}
	if wantProblem(t, send(7), 400, "body_unreadable"); runs.Load() != 0 {
		t.Errorf("%d runs", runs.Load())
	}
	for _, length := range []int64{3, -1} {
		if w := send(length); w.Code != 201 || runs.Load() != 1 {
			t.Errorf("length %d: %d, %d runs", length, w.Code, runs.Load())
		}
	}
}

func TestSecurity_OverTCPABodyThatIsAnnouncedAndMissingByHTTP2IsRejected(t *testing.T) {
	var runs atomic.Int32
	s := httptest.NewUnstartedServer(httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), single))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	defer s.Close()
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	var fields []byte // literals of RFC 7541, section 6.2.3
	for _, f := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":authority", "a.example"}, {":path", "/orders"}, {"idempotency-key", "k"}, {"content-length", "7"},
	} {
		fields = append(append(append(append(fields, 0x10, byte(len(f[0]))), f[0]...), byte(len(f[1]))), f[1]...)
	}
	const settings, headers, goAway, endStream, endHeaders = 4, 1, 7, 1, 4
	frames := "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + string([]byte{0, 0, 0, settings, 0, 0, 0, 0, 0}) +
		string([]byte{0, 0, byte(len(fields)), headers, endStream | endHeaders, 0, 0, 0, 1}) + string(fields)
	if _, err := io.WriteString(c, frames); err != nil {
		t.Fatal(err)
	}
	for ended := false; !ended; {
		var head [9]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(io.Discard, c, int64(head[0])<<16|int64(head[1])<<8|int64(head[2])); err != nil {
			t.Fatal(err)
		}
		if head[3] == goAway {
			t.Fatal("the server took the frames for malformed")
		}
		ended = head[8] == 1 && head[4]&endStream != 0
	}
	if n := runs.Load(); n != 0 {
		t.Errorf("%d runs", n)
	}
}
