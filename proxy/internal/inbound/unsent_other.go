//go:build !linux

package inbound

import "net"

// boundUnsent does nothing: what a client reads shows when the system reports it.
func boundUnsent(net.Conn) {}
