package httponce_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func TestEarlyRejection_ARejectionReachesAClientThatIsStillSending(t *testing.T) {
	cfg := byTenant
	cfg.Reject = func(_ *http.Request, tenant string) *httponce.Problem {
		if tenant == "busy" {
			return &httponce.Problem{Code: "busy", Status: 503}
		}
		return nil
	}
	var runs atomic.Int32
	s := newServer(t, httponce.Wrap(onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{}), counter(&runs), cfg), false)
	body := strings.Repeat("b", 12<<20) // more than the two sockets hold
	for name, c := range map[string]struct{ head, status string }{
		"too large":       {"X-Tenant: a\r\nIdempotency-Key: k\r\n", "413"},
		"no tenant":       {"Idempotency-Key: k\r\n", "401"},
		"not a key":       {"X-Tenant: a\r\nIdempotency-Key: k/2\r\n", "400"},
		"busy":            {"X-Tenant: busy\r\nIdempotency-Key: k\r\n", "413"},
		"busy, in pieces": {"X-Tenant: busy\r\nIdempotency-Key: k\r\n", "503"},
		"in pieces":       {"X-Tenant: a\r\nIdempotency-Key: k\r\n", "413"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", s.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			framing, end := fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body)), ""
			if strings.HasSuffix(name, "in pieces") {
				framing, end = fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n", len(body)), "\r\n0\r\n\r\n"
			}
			if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: h\r\n"+c.head+framing+body+end); err != nil {
				t.Errorf("sending: %v", err)
			}
			got, err := io.ReadAll(conn)
			if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 "+c.status+" ") {
				t.Errorf("%.80s, %v", got, err)
			}
		})
	}
}
