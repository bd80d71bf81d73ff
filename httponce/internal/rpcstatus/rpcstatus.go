// Package rpcstatus finds the outcome of gRPC, gRPC-Web and Connect calls in
// their responses, most of which have the HTTP status 200.
package rpcstatus

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"io"
	"iter"
	"net/http"
	"slices"
	"strings"

	"github.com/onlyonce-go/onlyonce/internal/contentcoding"
)

// These are the beginnings of media types.
const (
	grpcWeb       = "application/grpc-web"
	connectStream = "application/connect+"
)

// These flags mark the envelope at the end of a stream.
const (
	webTrailers = 0x80
	endStream   = 0x02
)

// Applies reports whether a response with this header is of a protocol whose errors have the
// HTTP status 200.
func Applies(header http.Header) bool {
	media := header["Content-Type"]
	if len(media) == 0 {
		return false
	}
	for _, prefix := range []string{"application/grpc", connectStream} {
		if len(media[0]) >= len(prefix) && strings.EqualFold(media[0][:len(prefix)], prefix) {
			return true
		}
	}
	return false
}

// LacksMessage reports whether a client would take a successful response without its body for an
// empty message: in Protocol Buffers, nothing is one, and in the protocols to which Applies, the body
// may have been all that the call was about. request is the header of the call.
func LacksMessage(request http.Header, sent int, header http.Header) bool {
	isRPC := Applies(header) || request.Get("Connect-Protocol-Version") != "" || isProtobuf(mediaOf(header))
	return isRPC && Of(sent, header, nil) < http.StatusBadRequest
}

// isProtobuf reports whether a media type is that of a message in Protocol Buffers, as Connect, Twirp
// and others write it.
func isProtobuf(media string) bool {
	switch strings.TrimSpace(media) {
	case "application/proto", "application/protobuf", "application/x-protobuf", "application/vnd.google.protobuf":
		return true
	}
	return false
}

// HasNoOutcome reports whether a response of one of these protocols, to which Applies, does not say what
// became of the call: there is no grpc-status, or the stream has no end. body is all of it. Whether a
// stream that is compressed as a whole has an end is not known.
func HasNoOutcome(header http.Header, body []byte) bool {
	media := mediaOf(header)
	web, connect := strings.HasPrefix(media, grpcWeb), strings.HasPrefix(media, connectStream)
	switch {
	case header.Get("Grpc-Status") != "", (web || connect) && contentcoding.Has(header["Content-Encoding"]):
		return false
	case web:
		_, _, ok := endOfStream(webBody(media, body), webTrailers)
		return !ok
	case connect:
		_, _, ok := endOfStream(body, endStream)
		return !ok
	}
	return true
}

// Of returns the HTTP status that stands for the outcome of the call whose
// response has this status, header with trailers, and body. It is the response's
// own status if the response is none of these protocols, or has no outcome that
// can be read.
func Of(sent int, header http.Header, body []byte) int {
	media := mediaOf(header)
	if header.Get("Grpc-Status") == "" && strings.HasPrefix(media, grpcWeb) {
		header = webHeader(readEnd(webBody(media, body), webTrailers, header.Get("Grpc-Encoding")))
	}
	if code := header.Get("Grpc-Status"); code != "" {
		return statusOfCode(code, sent, hasRetryInfo(header.Get("Grpc-Status-Details-Bin")))
	}
	if strings.HasPrefix(media, connectStream) {
		var end struct{ Error connectError }
		if json.Unmarshal(readEnd(body, endStream, header.Get("Connect-Content-Encoding")), &end) == nil && end.Error.Code != "" {
			return statusOfCode(end.Error.Code, sent, end.Error.asksForRetry())
		}
	}
	return sent
}

// webHeader returns the fields at the end of a stream of gRPC-Web.
func webHeader(end []byte) http.Header {
	h := http.Header{}
	for line := range bytes.Lines(end) {
		name, value, _ := strings.Cut(string(line), ":")
		h.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return h
}

// retryInfo is the name of the message that asks a client to send a call again.
const retryInfo = "google.rpc.RetryInfo"

// A connectError is the error of a call of the Connect protocol, as JSON.
type connectError struct {
	Code    string
	Details []struct{ Type string }
}

func (e connectError) asksForRetry() bool {
	return slices.ContainsFunc(e.Details, func(d struct{ Type string }) bool { return d.Type == retryInfo })
}

// hasRetryInfo reports whether the google.rpc.Status of a gRPC error, in base64, has a RetryInfo among
// its details. A text in the status may contain the same name.
func hasRetryInfo(details string) bool {
	status, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(details, "="))
	if err != nil {
		return false
	}
	for detail := range fieldsOf(status, 3) { // a google.protobuf.Any
		for typeURL := range fieldsOf(detail, 1) {
			if strings.HasSuffix(string(typeURL), "/"+retryInfo) {
				return true
			}
		}
	}
	return false
}

// These are the wire types of Protocol Buffers. Nothing else is in a google.rpc.Status.
const (
	wireVarint, wireFixed64, wireBytes, wireFixed32 = 0, 1, 2, 5
)

// fieldsOf returns the fields of a message that have a number and are bytes, up to the first that is
// malformed.
func fieldsOf(message []byte, number uint64) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for rest := message; len(rest) > 0; {
			tag, n := binary.Uvarint(rest)
			if n <= 0 {
				return
			}
			rest = rest[n:]
			size := uint64(0)
			switch tag & 7 {
			case wireVarint:
				_, n = binary.Uvarint(rest)
			case wireBytes:
				size, n = binary.Uvarint(rest)
			case wireFixed64:
				size, n = 8, 0
			case wireFixed32:
				size, n = 4, 0
			default:
				return
			}
			if n < 0 || size > uint64(len(rest)-n) {
				return
			}
			value := rest[n : n+int(size)]
			rest = rest[n+int(size):]
			if tag == number<<3|wireBytes && !yield(value) {
				return
			}
		}
	}
}

// canceled is the status of a call that was canceled. net/http has no name for it.
const canceled = 499

// codes are the codes of gRPC with their names in Connect and the HTTP status
// that Connect assigns to each: https://connectrpc.com/docs/protocol#error-codes.
var codes = []struct {
	number, name string
	status       int
}{
	{"1", "canceled", canceled},
	{"2", "unknown", http.StatusInternalServerError},
	{"3", "invalid_argument", http.StatusBadRequest},
	{"4", "deadline_exceeded", http.StatusGatewayTimeout},
	{"5", "not_found", http.StatusNotFound},
	{"6", "already_exists", http.StatusConflict},
	{"7", "permission_denied", http.StatusForbidden},
	{"8", "resource_exhausted", http.StatusTooManyRequests},
	{"9", "failed_precondition", http.StatusBadRequest},
	{"10", "aborted", http.StatusConflict},
	{"11", "out_of_range", http.StatusBadRequest},
	{"12", "unimplemented", http.StatusNotImplemented},
	{"13", "internal", http.StatusInternalServerError},
	{"14", "unavailable", http.StatusServiceUnavailable},
	{"15", "data_loss", http.StatusInternalServerError},
	{"16", "unauthenticated", http.StatusUnauthorized},
}

// statusOfCode returns the HTTP status of a code. sent is the status of a call
// that succeeded. A code that is not one of codes counts as "unknown". A rejection that
// asks for a retry is not the outcome of the command, whatever its code is.
func statusOfCode(code string, sent int, asksForRetry bool) int {
	if code == "0" {
		return sent
	}
	status := http.StatusInternalServerError
	for _, c := range codes {
		if code == c.number || code == c.name {
			status = c.status
		}
	}
	if asksForRetry && status < http.StatusInternalServerError && status != canceled {
		return http.StatusTooEarly
	}
	return status
}

// mediaOf returns the media type of a response, in lower case.
func mediaOf(header http.Header) string {
	media, _, _ := strings.Cut(strings.ToLower(header.Get("Content-Type")), ";")
	return media
}

// webBody returns the envelopes in a body of gRPC-Web.
func webBody(media string, body []byte) []byte {
	if strings.HasPrefix(media, "application/grpc-web-text") {
		return decodeText(body)
	}
	return body
}

// decodeText decodes the body of a gRPC-Web response in text mode: base64, in one
// chunk or in several, each of which is padded. It returns nil if the body is anything
// else.
func decodeText(body []byte) []byte {
	text := make([]byte, 0, base64.StdEncoding.DecodedLen(len(body)))
	for ; len(body) > 0; body = body[4:] {
		var decoded [3]byte
		if len(body) < 4 {
			return nil
		}
		n, err := base64.StdEncoding.Decode(decoded[:], body[:4])
		if err != nil {
			return nil
		}
		text = append(text, decoded[:n]...)
	}
	return text
}

// longestEnd bounds the decompressed end of a stream, in bytes.
const longestEnd = 64 << 10

// endOfStream returns the content of the envelope that has the flag. A body is a
// sequence of envelopes, each with a byte of flags, the length in 4 bytes, and
// the content; the lowest flag says that the content is compressed. ok is false if
// there is no such envelope.
func endOfStream(body []byte, flag byte) (content []byte, compressed, ok bool) {
	for len(body) >= 5 {
		flags, size := body[0], uint64(binary.BigEndian.Uint32(body[1:5]))
		if body = body[5:]; size > uint64(len(body)) {
			break
		}
		if flags&flag != 0 {
			return body[:size], flags&1 != 0, true
		}
		body = body[size:]
	}
	return nil, false, false
}

// readEnd returns what is in the envelope that has the flag, or nil if there is none or it
// can't be read.
func readEnd(body []byte, flag byte, encoding string) []byte {
	content, compressed, _ := endOfStream(body, flag)
	switch {
	case !compressed:
		return content
	case encoding == "gzip":
		return gunzip(content)
	}
	return nil
}

func gunzip(content []byte) []byte {
	r, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(r, longestEnd))
	if err != nil {
		return nil
	}
	return text
}
