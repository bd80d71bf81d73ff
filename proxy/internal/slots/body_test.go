package slots

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// A closable body fails once it is closed, as that of a server's request does.
type closable struct {
	io.Reader
	closed bool
}

func (c *closable) Read(p []byte) (int, error) {
	if c.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := c.Reader.Read(p)
	if err == nil && n == len("body") {
		err = io.EOF // with the last bytes, as a body of known length
	}
	return n, err
}

func (c *closable) Close() error {
	c.closed = true
	return nil
}

// An upstream may respond before the sender of the request has looked whether there is more of
// its body, and the beginning of the response closes the body.
func TestBody_ABodyThatHasEndedHasEndedAlsoWhenItIsClosed(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/", &closable{Reader: strings.NewReader("body")})
	b := NewTimedBody(httptest.NewRecorder(), r, time.Minute)
	if n, err := b.Read(make([]byte, 10)); n != 4 || err != io.EOF {
		t.Fatalf("%d, %v", n, err)
	}
	if err := r.Body.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := b.Read(make([]byte, 10)); n != 0 || err != io.EOF {
		t.Errorf("%d, %v", n, err)
	}
}
