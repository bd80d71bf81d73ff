package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/proxy"
)

func TestEarlyRejection_ARejectionReachesAClientThatIsStillSending(t *testing.T) {
	var runs atomic.Int32
	up := upstream(t, counter(&runs))
	p := proxy.New([]proxy.Route{
		{Method: "POST", Pattern: "/v1/orders", Upstream: up, Guard: newGuard(onlyonce.Config{}), Idempotency: single},
		{Pattern: "/short", Upstream: up, MaxBody: 1000},
	}, proxy.Config{})
	addr := serve(t, p)
	body := strings.Repeat("b", 12<<20) // more than the sockets hold
	for name, c := range map[string]struct{ request, status string }{
		"two lengths":        {"POST /v1/orders HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n" + body, "400"},
		"no HTTP":            {body, "4"},
		"a head too long":    {"POST /v1/orders HTTP/1.1\r\nHost: h\r\nX: " + body, "4"},
		"an odd target":      {fmt.Sprintf("POST http://h/v1/orders HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s", len(body), body), "400"},
		"no route":           {fmt.Sprintf("POST /none HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s", len(body), body), "404"},
		"too long":           {fmt.Sprintf("POST /short HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s", len(body), body), "413"},
		"too long with key":  {fmt.Sprintf("POST /v1/orders HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k\r\nContent-Length: %d\r\n\r\n%s", len(body), body), "413"},
		"too long in pieces": {fmt.Sprintf("POST /short HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body), "413"},
		"a bad chunk":        {fmt.Sprintf("POST /v1/orders HTTP/1.1\r\nHost: h\r\nIdempotency-Key: l\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n%s", body), "400"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := dial(t, addr)
			_ = conn.SetDeadline(time.Now().Add(time.Minute))
			if _, err := io.WriteString(conn, c.request); err != nil {
				t.Errorf("sending: %v", err)
			}
			got, err := io.ReadAll(conn)
			if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 "+c.status) {
				t.Errorf("%.80q, %v", got, err)
			}
		})
	}
}

func TestEarlyRejection_AConnectionThatIsIdleIsClosedAtOnce(t *testing.T) {
	var runs atomic.Int32
	addr := orders(t, upstream(t, counter(&runs)), onlyonce.Config{}, nil)
	conn := dial(t, addr)
	fmt.Fprintf(conn, "POST /v1/orders HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx")
	if got, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(got), fmt.Sprint("HTTP/1.1 ", http.StatusCreated)) {
		t.Errorf("%.80q, %v", got, err)
	}
}
