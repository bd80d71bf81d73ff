package httponce_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
)

// By HTTP/2, net/http lets a request through whose announced body never comes.
func TestSecurity11ABodyThatIsAnnouncedAndMissingIsRefused(t *testing.T) {
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
