// Package h1 is the client by which the proxy sends keyed requests over HTTP/1.1.
//
// It exists because http.Transport does not say whether a server may have received
// any of a request that failed, and sends some requests again by itself; the outcome
// of a command depends on both. A Client sends each request once, and Send reports
// whether any of it may have arrived. It is also cheaper: it copies a header once, and
// it needs no goroutine for a connection. BenchmarkSend compares the two.
//
// # What is accepted
//
// A response is accepted if it has one reading by RFC 9112: a status line of HTTP/1.0
// or 1.1, lines that end with CRLF, header names that are tokens, values without
// control characters, at most 64 KiB and 256 fields, and a body that has one length,
// is chunked, or ends with the connection. Up to MaxInterim interim responses are
// skipped.
//
// # What is rejected
//
// Everything that two parsers could read in two ways, because what follows it could
// be taken for the response to another request: two lengths, also if they are equal; a
// length beside a transfer coding, and any coding but chunked; a folded line, a line
// that ends with LF alone, a blank before a colon; a chunk whose size has a sign, a
// prefix or more than 15 digits; a body where none can be; a switch of protocols. An
// error then says so, and the outcome of the command is unknown.
//
// # Connections
//
// A connection belongs to one owner, the tenant, so that whatever a server writes
// behind a response is never given to another. It is used again only if the response
// was read to its end and nothing has been received behind it.
package h1
