// Package httpfield has the rules for the names and the values of HTTP headers (RFC 9110, section 5),
// and the names of those that several packages set.
package httpfield

import "strings"

// These are the headers of a response to a request with a key.
const (
	Replayed  = "Idempotency-Replayed"  // true: this is the stored response
	Replay    = "Idempotency-Replay"    // omitted: the stored response has no body
	Expires   = "Idempotency-Expires"   // when protection ends
	Protected = "Idempotency-Protected" // no: nothing is stored
)

// These are the headers of a request that a server behind a proxy gets.
const (
	Attempt = "Idempotency-Attempt" // the number of the attempt; the first is 1
	Fence   = "Idempotency-Fence"   // that of the attempt
)

// OfResponse reports whether a header, by its canonical name, is one of those of a response to a
// request with a key.
func OfResponse(name string) bool {
	switch name {
	case Replayed, Replay, Expires, Protected:
		return true
	}
	return false
}

// OfConnection reports whether a header, by its canonical name, is about one connection and not
// about the message.
func OfConnection(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Te", "Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

// OfOneExchange reports whether a header, by its canonical name, is about the time or the trace of one
// request and its response.
func OfOneExchange(name string) bool {
	switch name {
	case "Date", "Age", "Traceparent", "Tracestate", "Traceresponse", "Grpc-Trace-Bin", "Server-Timing":
		return true
	}
	return strings.HasPrefix(name, "X-B3-")
}

// DropDeadlines deletes the headers by which a client of gRPC or Connect limits the time of a call. A
// command does not end with its client: a server that gives up may do so in the middle.
func DropDeadlines(header map[string][]string) {
	delete(header, "Grpc-Timeout")
	delete(header, "Connect-Timeout-Ms")
}

// IsType reports whether a Content-Type is the media type, with any parameters.
func IsType(contentType, media string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.Trim(kind, " \t"), media)
}

// IsEventStream reports whether a Content-Type is that of server-sent events, which are useless if they
// are held back.
func IsEventStream(contentType string) bool { return IsType(contentType, "text/event-stream") }

// IsGRPC reports whether a Content-Type is that of gRPC. Others that begin with the same text, such as
// application/grpc-web, are not.
func IsGRPC(contentType string) bool {
	rest, ok := strings.CutPrefix(contentType, "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

var tokenBytes = func() (is [256]bool) {
	for _, b := range []byte("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") {
		is[b] = true
	}
	return is
}()

// IsTokenByte reports whether b may be part of a token.
func IsTokenByte(b byte) bool { return tokenBytes[b] }

// IsToken reports whether s is a token, such as the name of a header or a method.
func IsToken(s string) bool {
	for i := range len(s) {
		if !tokenBytes[s[i]] {
			return false
		}
	}
	return s != ""
}

// IsText reports whether s has no control character except tabs, as the value of a header must
// not.
func IsText[S string | []byte](s S) bool {
	for i := range len(s) {
		if b := s[i]; b < ' ' && b != '\t' || b == 0x7f {
			return false
		}
	}
	return true
}

// IsUnambiguous reports whether all servers read a header under its own name: it has only letters,
// digits and hyphens. CGI-like servers read X_Tenant as X-Tenant, and some read X.Tenant as
// X-Tenant, too.
func IsUnambiguous(name string) bool {
	for i := range len(name) {
		b := name[i]
		if letter := 'a' <= b|0x20 && b|0x20 <= 'z'; !letter && (b < '0' || b > '9') && b != '-' {
			return false
		}
	}
	return name != ""
}
