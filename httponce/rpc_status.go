package httponce

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/onlyonce-go/onlyonce"
)

// RPCStatus is a Config.StatusOf for handlers that speak gRPC, gRPC-Web or the
// Connect protocol, such as those of connect-go and grpc-go. These send most
// errors with the HTTP status 200; the outcome of a call is in grpc-status or
// at the end of the body. An error counts as the HTTP status that the Connect
// protocol assigns to its code. Internal, unknown, data_loss, unavailable,
// deadline_exceeded and unimplemented count as 500 or more: the command failed
// and may run again. Unauthenticated, permission_denied and resource_exhausted
// count as 401, 403 and 429, which are not stored by default. All others count
// as 400, 404 or 409, which are replayed. Canceled counts as 500, because a
// caller cannot cancel a command.
//
// Any other response counts as its own status. So does a response whose end
// can't be read because its body is too long to be stored or is compressed with
// anything but gzip.
func RPCStatus(answer onlyonce.Result) int {
	header := http.Header(answer.Header)
	if code := header.Get("Grpc-Status"); code != "" {
		return statusOfCode(code, answer.Status)
	}
	media, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	switch {
	case strings.HasPrefix(media, "application/grpc-web"):
		end := endOfStream(answer.Body, 0x80, header.Get("Grpc-Encoding"))
		for line := range bytes.Lines(end) {
			name, value, _ := strings.Cut(string(line), ":")
			if strings.EqualFold(name, "grpc-status") {
				return statusOfCode(strings.TrimSpace(value), answer.Status)
			}
		}
	case strings.HasPrefix(media, "application/connect+"):
		var end struct{ Error struct{ Code string } }
		if json.Unmarshal(endOfStream(answer.Body, 0x02, header.Get("Connect-Content-Encoding")), &end) == nil && end.Error.Code != "" {
			return statusOfCode(end.Error.Code, answer.Status)
		}
	}
	return answer.Status
}

// rpcCodes are the codes of gRPC by number, as Connect names them, with the HTTP
// status that Connect has for each: https://connectrpc.com/docs/protocol#error-codes.
var rpcCodes = []struct {
	number, name string
	status       int
}{
	{"1", "canceled", http.StatusInternalServerError},
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

// statusOfCode returns the HTTP status of a code; sent is that of a call that
// succeeded. A code that is not known counts as unknown.
func statusOfCode(code string, sent int) int {
	if code == "0" {
		return sent
	}
	for _, c := range rpcCodes {
		if code == c.number || code == c.name {
			return c.status
		}
	}
	return http.StatusInternalServerError
}

// longestEnd bounds what the end of a stream may have, in bytes.
const longestEnd = 64 << 10

// endOfStream returns the content of the envelope with a flag, of a body of
// envelopes: a byte of flags, of which the lowest says that it is compressed, and the
// length in 4 bytes, before each. It is nil if there is none that can be read.
func endOfStream(body []byte, flag byte, encoding string) []byte {
	for len(body) >= 5 {
		flags, size := body[0], uint64(binary.BigEndian.Uint32(body[1:5]))
		if body = body[5:]; size > uint64(len(body)) {
			return nil
		}
		content := body[:size]
		body = body[size:]
		switch {
		case flags&flag == 0:
		case flags&1 == 0:
			return content
		case encoding == "gzip":
			return gunzip(content)
		default:
			return nil
		}
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
