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
	"github.com/onlyonce-go/onlyonce/internal/bridge"
	"github.com/onlyonce-go/onlyonce/internal/httpfield"
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
	bridge.Response
	sent http.Header // the header when the status was written; nil: it was not
}

func newResponseWriter() *responseWriter {
	return &responseWriter{Response: bridge.Response{Fields: http.Header{}}}
}

func (w *responseWriter) WriteHeader(status int) {
	if w.Response.WriteHeader(status); w.sent == nil && w.Status != 0 {
		w.sent = w.Fields.Clone()
	}
}

func (w *responseWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.Status == http.StatusNoContent || w.Status == http.StatusNotModified {
		return 0, http.ErrBodyNotAllowed
	}
	return w.Response.Write(p)
}

// payload returns the response in the format of the event.
func (w *responseWriter) payload(e HTTPEvent) ([]byte, error) {
	w.WriteHeader(http.StatusOK)
	h, body := w.sent, string(w.Body)
	if _, ok := h["Content-Type"]; !ok && body != "" && h.Get("Content-Encoding") == "" {
		h.Set("Content-Type", http.DetectContentType(w.Body)) // as net/http does
	}
	for name, values := range h {
		switch {
		case len(values) == 0, strings.HasPrefix(name, http.TrailerPrefix), name == "Content-Length", httpfield.OfConnection(name):
			delete(h, name) // API Gateway writes its own, and has no trailers
		}
	}
	isBase64 := !utf8.ValidString(body)
	if isBase64 {
		body = base64.StdEncoding.EncodeToString(w.Body)
	}
	if e.V1 != nil {
		return encode(events.APIGatewayProxyResponse{StatusCode: w.Status, MultiValueHeaders: h, Body: body, IsBase64Encoded: isBase64})
	}
	cookies, headers := h["Set-Cookie"], make(map[string]string, len(h))
	delete(h, "Set-Cookie")
	for name, values := range h {
		headers[name] = strings.Join(values, ", ")
	}
	return encode(events.APIGatewayV2HTTPResponse{StatusCode: w.Status, Headers: headers, Cookies: cookies, Body: body, IsBase64Encoded: isBase64})
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
