package server

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
)

// A deadlineRecorder takes note of the deadlines set on its connection.
type deadlineRecorder struct {
	*httptest.ResponseRecorder
	set []time.Time
}

func (d *deadlineRecorder) SetReadDeadline(t time.Time) error {
	d.set = append(d.set, t)
	return nil
}

func TestServer_TheDeadlineOfABodyIsLiftedAtItsEnd(t *testing.T) {
	w := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
	limitBody(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if len(w.set) != 1 || time.Until(w.set[0]) > time.Hour || time.Until(w.set[0]) < time.Minute {
			t.Errorf("before the body: %v", w.set)
		}
		if _, err := io.ReadAll(r.Body); err != nil {
			t.Error(err)
		}
		if len(w.set) != 2 || !w.set[1].IsZero() {
			t.Errorf("after the body: %v", w.set)
		}
	}), time.Hour).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader("body")))
}

func TestSecurity_AClientThatSendsItsBodySlowlyIsCutOff(t *testing.T) {
	readError := make(chan error, 1)
	srv := httptest.NewServer(limitBody(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		readError <- err
	}), 20*time.Millisecond))
	defer srv.Close()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-readError:
		if err == nil {
			t.Error("the body was read to its end")
		}
	case <-time.After(cmdtest.Soon):
		t.Error("the handler still waits for the body")
	}
}

func TestServer_PeopleAreToldWhereItCanBeReached(t *testing.T) {
	for ip, want := range map[string]string{
		"127.0.0.1": "http://127.0.0.1:80",
		"192.0.2.1": "http://192.0.2.1:80",
		"0.0.0.0":   "http://127.0.0.1:80 (and on every other address of this machine)",
		"::":        "http://127.0.0.1:80 (and on every other address of this machine)",
	} {
		addr := &net.TCPAddr{IP: net.ParseIP(ip), Port: 80}
		if got := Where("http://"+Reachable(addr), addr); got != want {
			t.Errorf("%s: %q, want %q", ip, got, want)
		}
	}
}
