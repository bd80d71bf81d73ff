package inbound

import (
	"net/http"
	"time"
)

// receiveBuffer is how much an HTTP/2 client may send before it is read. No limit
// counts it. It is the smallest value that net/http accepts.
const receiveBuffer = 64 << 10

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
			WriteByteTimeout: WriteTime, MaxConcurrentStreams: 250,
			MaxReceiveBufferPerConnection: receiveBuffer, MaxReceiveBufferPerStream: receiveBuffer,
		},
	}
}
