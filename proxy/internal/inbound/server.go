package inbound

import (
	"net/http"
	"time"
)

const (
	// mostStreams is how many requests an HTTP/2 connection carries at a time.
	mostStreams = 250
	// receiveBuffer is how much of a request's body an HTTP/2 client may send before it is
	// read. No limit counts it. A body stays unread while its request has a slot or waits for
	// one, or for memory, and until its client reads the rejection or is ended.
	receiveBuffer = 64 << 10
	// connBuffer is how much it may send of all of them. They must not share less: a gateway
	// sends the requests of many clients over one connection, and bodies that nobody reads
	// would keep those of all others from arriving.
	connBuffer = mostStreams * receiveBuffer
)

// The limits of the server on the header of a request.
const (
	ReadHeaderTimeout = 5 * time.Second
	MaxHeaderBytes    = 32 << 10
)

// NewServer returns a server with the limits that proxy.Server promises.
func NewServer(h http.Handler) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           timeStreams(h),
		ReadHeaderTimeout: ReadHeaderTimeout,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    MaxHeaderBytes,
		Protocols:         protocols,
		ConnContext:       withConn,
		HTTP2: &http.HTTP2Config{
			WriteByteTimeout: WriteTime, MaxConcurrentStreams: mostStreams,
			MaxReceiveBufferPerConnection: connBuffer, MaxReceiveBufferPerStream: receiveBuffer,
		},
	}
}
