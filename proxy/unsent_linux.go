package proxy

import (
	"net"
	"syscall"
)

const (
	// tcpNotSentLowat is TCP_NOTSENT_LOWAT, which package syscall does not name.
	tcpNotSentLowat = 25
	// mostUnsent is how much of what is written to a client the kernel keeps that
	// it may not send yet. What a client takes then shows soon: of a buffer that
	// has grown to megabytes, room is reported only when a third is free.
	mostUnsent = 64 << 10
)

func boundUnsent(c net.Conn) {
	if s, ok := c.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) {
				_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpNotSentLowat, mostUnsent) // without it, slow clients have less patience
			})
		}
	}
}
