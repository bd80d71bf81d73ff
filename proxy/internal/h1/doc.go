// Package h1 is the HTTP/1.1 client with which the proxy sends keyed requests, and short
// requests without a key.
//
// It exists because http.Transport does not report whether the server may have
// received any of a request that failed, and resends some requests by itself. The
// outcome of a command depends on both. A Client sends each request once, and Send
// reports whether any of it may have arrived. It is also cheaper: it copies a header
// only once and needs no goroutine for a connection. BenchmarkSend compares the two.
//
// # What is accepted
//
// A response is accepted if RFC 9112 gives it exactly one reading: a status line of
// HTTP/1.0 or 1.1, lines that end with CRLF, header names that are tokens, values
// without control characters, at most 64 KiB and 256 fields, and a body that has one
// length, is chunked, or ends with the connection. Up to MaxInterim interim responses
// are passed to Request.OnInterim, or skipped.
//
// # What is rejected
//
// Every response that two parsers could read differently is rejected, because the
// bytes after it could be read as the response to another request: two lengths, even
// if they are equal; a length together with a transfer coding; a coding other than
// chunked; a folded line, a line that ends with LF alone, white space before a colon;
// a chunk size with a sign, a prefix or more than 15 digits; a body where none is
// allowed; a switch of protocols. Send then returns an error, and the outcome of the
// command is unknown.
//
// # Connections
//
// A connection belongs to one owner, the tenant, so that stray bytes that a server
// writes after a response never reach another tenant. Requests without a key have a
// Client of their own. A connection is reused only if the response was read to its end,
// nothing has been received after it, and the request's context had not ended.
//
// # Resending
//
// Send uses another connection only if nothing was sent on the first, an idle one that
// the server had closed. If any of the request may have been sent, Send returns an error,
// whatever the method. If the server closed an idle connection without any response, the
// error is an ErrIdleClosed, with which the caller may resend a safe request.
package h1
