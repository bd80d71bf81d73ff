package inbound

import (
	"net"
	"syscall"
)

const (
	// tcpNotSentLowat is TCP_NOTSENT_LOWAT, which package syscall does not name.
	tcpNotSentLowat = 25
	// mostUnsent is how many unsent bytes the kernel keeps for a client. What the
	// client reads then shows soon: of a buffer that has grown to megabytes, the
	// kernel reports room only when a third is free.
	mostUnsent = 64 << 10
)

// boundUnsent makes the kernel keep little unsent data for the client.
func boundUnsent(c net.Conn) {
	if s, ok := c.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) {
				_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpNotSentLowat, mostUnsent) // without it, slow clients have less patience
			})
		}
	}
}
