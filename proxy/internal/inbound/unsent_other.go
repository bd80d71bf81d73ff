//go:build !linux

package inbound

import "net"

// boundUnsent does nothing: the system reports late how much a client has read.
func boundUnsent(net.Conn) {}
