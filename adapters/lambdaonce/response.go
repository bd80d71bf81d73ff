package lambdaonce

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"

	"github.com/onlyonce-go/onlyonce/httponce"
)

// maxPayload is how many bytes the response to an invocation may have.
const maxPayload = 6 << 20

// CodeResponseTooLarge is the code of the problem, with status 500, that replaces a response
// that is too large for Lambda. The command has run, and its outcome is recorded.
const CodeResponseTooLarge = "lambda_response_too_large"

var tooLarge = httponce.Problem{
	Code: CodeResponseTooLarge, Status: http.StatusInternalServerError,
	Detail: "The response is larger than AWS Lambda can return. The request was processed: do not send it again with another key.",
}

// A responseWriter keeps a response until it is returned to Lambda.
type responseWriter struct {
	header http.Header
	sent   http.Header // the header when the status was written
	status int         // 0: it was not
	body   bytes.Buffer
}

func newResponseWriter() *responseWriter { return &responseWriter{header: http.Header{}} }

func (w *responseWriter) Header() http.Header { return w.header }

func (w *responseWriter) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK { // others are informational
		w.status, w.sent = status, w.header.Clone()
	}
}

func (w *responseWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.status == http.StatusNoContent || w.status == http.StatusNotModified {
		return 0, http.ErrBodyNotAllowed
	}
	return w.body.Write(p)
}

// payload returns the response in the format of the event.
func (w *responseWriter) payload(e HTTPEvent) ([]byte, error) {
	w.WriteHeader(http.StatusOK)
	h, body := w.sent, w.body.String()
	if _, ok := h["Content-Type"]; !ok && body != "" && h.Get("Content-Encoding") == "" {
		h.Set("Content-Type", http.DetectContentType(w.body.Bytes())) // as net/http does
	}
	for name, values := range h {
		switch {
		case len(values) == 0, strings.HasPrefix(name, http.TrailerPrefix), name == "Content-Length", name == "Connection", name == "Transfer-Encoding":
			delete(h, name) // API Gateway writes its own, and has no trailers
		}
	}
	isBase64 := !utf8.ValidString(body)
	if isBase64 {
		body = base64.StdEncoding.EncodeToString(w.body.Bytes())
	}
	if e.V1 != nil {
		return encode(events.APIGatewayProxyResponse{StatusCode: w.status, MultiValueHeaders: h, Body: body, IsBase64Encoded: isBase64})
	}
	cookies, headers := h["Set-Cookie"], make(map[string]string, len(h))
	delete(h, "Set-Cookie")
	for name, values := range h {
		headers[name] = strings.Join(values, ", ")
	}
	return encode(events.APIGatewayV2HTTPResponse{StatusCode: w.status, Headers: headers, Cookies: cookies, Body: body, IsBase64Encoded: isBase64})
}

// encode returns the JSON of a response, no longer than necessary.
func encode(response any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(response); err != nil {
		return nil, fmt.Errorf("lambdaonce: encode the response: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
