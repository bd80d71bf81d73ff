package proxy

import (
	"net/http"
	"time"
)

// Server returns a server for a Proxy, or a handler round one, with limits
// against slow and greedy clients: 5 seconds for a request's header, of at most
// 32 KiB, two minutes for an idle connection, and a minute for a client that takes
// nothing of its answer. It speaks HTTP/1 and HTTP/2, in clear text too. Give its
// Serve what Listen returns.
func Server(h http.Handler) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		Protocols:         protocols,
		HTTP2:             &http.HTTP2Config{WriteByteTimeout: writeTime, MaxConcurrentStreams: 250},
	}
}
