package bridge_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/onlyonce-go/onlyonce/internal/bridge"
)

func TestResponse_KeepsTheFirstStatusThatIsFinal(t *testing.T) {
	w := &bridge.Response{Fields: http.Header{}}
	w.WriteHeader(http.StatusEarlyHints)
	if w.Status != 0 {
		t.Errorf("after 103, the status is %d", w.Status)
	}
	w.WriteHeader(http.StatusCreated)
	w.WriteHeader(http.StatusOK)
	for _, part := range []string{"ma", "de"} {
		if n, err := io.WriteString(w, part); n != 2 || err != nil {
			t.Errorf("a write got %d, %v", n, err)
		}
	}
	if w.Status != http.StatusCreated || string(w.Body) != "made" {
		t.Errorf("got %d %q", w.Status, w.Body)
	}
	w = &bridge.Response{}
	if _, err := w.Write(nil); err != nil || w.Status != http.StatusOK {
		t.Errorf("a write without a status got %d, %v", w.Status, err)
	}
}

func TestBody_IsReceivedAtTheFirstRead(t *testing.T) {
	received := 0
	b := &bridge.Body{Receive: func() ([]byte, error) {
		received++
		return []byte("a lamp"), nil
	}}
	if received != 0 {
		t.Error("it is received before it is read")
	}
	for _, want := range []string{"a lamp", ""} {
		if got, err := io.ReadAll(b); string(got) != want || err != nil {
			t.Errorf("read %q, %v, want %q", got, err, want)
		}
	}
	if err := b.Close(); err != nil || received != 1 {
		t.Errorf("%v, and received %d times", err, received)
	}
	if got, err := io.ReadAll(&bridge.Body{Rest: []byte("a chair")}); string(got) != "a chair" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
}
