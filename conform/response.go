package conform

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxResponse is the maximum length of a body, and maxMessage that of a response with its
// head and its chunked encoding.
const (
	maxResponse = 4 << 20
	maxMessage  = 2 * maxResponse
)

// A response is the response to a request. A status of 0 means that there was none, for
// the reason in failure.
type response struct {
	status   int
	header   http.Header
	head     []byte
	body     []byte
	failure  string
	duration time.Duration
}

// readResponse reads the final response to a request with the method.
func readResponse(from io.Reader, method string) (response, error) {
	var raw bytes.Buffer
	in := bufio.NewReader(io.TeeReader(io.LimitReader(from, maxMessage), &raw))
	for {
		begins := raw.Len() - in.Buffered()
		resp, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			return response{}, err
		}
		if resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols {
			continue
		}
		a := response{status: resp.StatusCode, header: resp.Header, head: head(raw.Bytes()[begins:])}
		if a.body, err = io.ReadAll(io.LimitReader(resp.Body, maxResponse+1)); err != nil {
			return response{}, fmt.Errorf("the response breaks off: %w", err)
		}
		if len(a.body) > maxResponse {
			return response{}, fmt.Errorf("the response is longer than %d bytes", maxResponse)
		}
		return a, resp.Body.Close()
	}
}

func head(raw []byte) []byte {
	end := bytes.Index(raw, []byte("\r\n\r\n"))
	if end < 0 {
		end = len(raw)
	}
	return bytes.Clone(raw[:end])
}

func (a response) ok() bool       { return a.status/100 == 2 }
func (a response) rejected() bool { return a.status/100 == 4 }

// String returns the status, or why there was no response.
func (a response) String() string {
	if a.status == 0 {
		return "nothing (" + a.failure + ")"
	}
	return strconv.Itoa(a.status)
}

// retryAfter returns how long the response asks the client to wait, at most 2
// seconds, or fallback if it has no Retry-After.
func (a response) retryAfter(fallback time.Duration) time.Duration {
	if s, err := strconv.Atoi(a.header.Get("Retry-After")); err == nil && s >= 0 {
		return min(time.Duration(s)*time.Second, 2*time.Second)
	}
	return fallback
}

// busy reports whether a response asks the client to retry later.
func (a response) busy() bool {
	switch a.status {
	case http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	case http.StatusServiceUnavailable:
		return a.header.Get("Retry-After") != ""
	}
	return false
}

// resultHeaders are the headers that belong to the result of a command. Others describe
// the connection, the moment, or an intermediary.
var resultHeaders = []string{
	"Content-Type", "Content-Language", "Content-Encoding", "Content-Disposition",
	"Content-Location", "Location", "Etag", "Last-Modified", "Link",
}

// parts returns the parts of a response that are equal in its replay.
func (a response) parts() map[string]string {
	p := map[string]string{"the status": strconv.Itoa(a.status), "the body": string(a.body)}
	for _, name := range resultHeaders {
		p[name] = strings.Join(a.header.Values(name), "\n")
	}
	return p
}

// differences names the parts in which two responses differ.
func differences(a, b response) []string {
	of, other := a.parts(), b.parts()
	return slices.Sorted(func(yield func(string) bool) {
		for name := range maps.Keys(of) {
			if of[name] != other[name] && !yield(name) {
				return
			}
		}
	})
}

// replayHeader returns the name of the header that marks the response as a replay, or "".
func (a response) replayHeader() string {
	for _, name := range slices.Sorted(maps.Keys(a.header)) {
		value := strings.ToLower(a.header.Get(name))
		switch name := strings.ToLower(name); {
		case slices.Contains([]string{"", "false", "?0", "0", "no", "original"}, value):
		case name == "replay-nonce": // of ACME, on every response
		case strings.Contains(name, "replay"),
			strings.Contains(name, "idempoten") && (strings.Contains(value, "replay") || strings.Contains(value, "cached") || strings.Contains(value, "duplicate") || value == "hit"):
			return http.CanonicalHeaderKey(name)
		}
	}
	return ""
}

var errClosed = errors.New("the connection was closed")

// noResponse returns a response that stands for one that did not arrive.
func noResponse(err error, within time.Duration) response {
	var timeout interface{ Timeout() bool }
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		err = fmt.Errorf("not within %v", within)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = errClosed
	}
	return response{failure: err.Error()}
}
