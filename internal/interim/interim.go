// Package interim sends interim responses, such as 103 Early Hints.
package interim

import "net/http"

// Write sends an interim response with the header of w. Over HTTP/2, another goroutine of
// net/http encodes the header. If the client resets the stream, WriteHeader does not wait for
// that, and a change of the header by its owner would crash the program. net/http encodes a
// copy if it has to leave out a Content-Length.
func Write(w http.ResponseWriter, status int) {
	const name = "Content-Length"
	h := w.Header()
	if _, ok := h[name]; !ok {
		h[name] = nil
		defer delete(h, name)
	}
	w.WriteHeader(status)
}
