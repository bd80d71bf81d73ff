package apitest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// Breaks are the ways in which PostPart's body ends too early.
var Breaks = []string{"cut", "slow"}

// PostPart posts to h the beginning of a body whose rest never comes: it is cut
// off, or slower than the server allows. Header lines end with CRLF.
func PostPart(t *testing.T, h http.Handler, path, how, header string) (*http.Response, []byte) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if how == "slow" {
			try(t, http.NewResponseController(w).SetReadDeadline(time.Now().Add(20*time.Millisecond)))
		}
		h.ServeHTTP(w, r)
	}))
	defer srv.Close()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	try(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n%s\r\n{", path, header)
	try(t, err)
	if how == "cut" {
		try(t, conn.(*net.TCPConn).CloseWrite())
	}
	try(t, conn.SetReadDeadline(time.Now().Add(30*time.Second)))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	try(t, err)
	return resp, body
}

func try(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}
