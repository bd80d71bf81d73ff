package inbound

import (
	"crypto/tls"
	"net"
	"net/http/httptest"
	"syscall"
	"testing"
)

func TestUnsent_TheKernelKeepsLittleThatItMayNotSendToAClient(t *testing.T) {
	secure := httptest.NewTLSServer(nil)
	defer secure.Close()
	for name, config := range map[string]*tls.Config{"plain": nil, "TLS": secure.TLS} {
		t.Run(name, func(t *testing.T) {
			below, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			l := Listen(below, config, func(net.Addr, error) {})
			defer l.Close()
			go func() {
				if config == nil {
					if c, err := net.Dial("tcp", l.Addr().String()); err == nil {
						defer c.Close()
					}
					return
				}
				if c, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true}); err == nil {
					defer c.Close()
				}
			}()
			c, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			switch accepted := c.(type) {
			case *scannedConn:
				c = accepted.Conn
			case *scannedSecure:
				c = accepted.secure.NetConn()
			case *tls.Conn:
				c = accepted.NetConn()
			}
			raw, err := c.(syscall.Conn).SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			if err := raw.Control(func(fd uintptr) {
				if n, err := syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpNotSentLowat); n != mostUnsent || err != nil {
					t.Errorf("%d, %v", n, err)
				}
			}); err != nil {
				t.Error(err)
			}
		})
	}
}
